"""A real model against transformers: SmolLM2-135M from its GGUF file and from Hugging Face directories."""

from __future__ import annotations

from pathlib import Path

import pytest

import volumetric as vm
from tests.golden.smollm2 import GGUF, NAMES, check_prompt, golden, teacher_forced
from volumetric.loaders.convert_model import convert_model


@pytest.fixture(scope="session")
def bf16_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory with the GGUF's weights rounded to bfloat16."""
    target = tmp_path_factory.mktemp("smollm2") / "bf16"
    convert_model(GGUF, str(target), dtype="bfloat16", format="hf")
    return target


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("device", "names", "tokens"),
    [pytest.param("reference", NAMES[:1], 4, marks=pytest.mark.thorough), ("cpu", NAMES, 40)],
)
def test_gguf_in_float32_equals_transformers(device: str, names: tuple[str, ...], tokens: int) -> None:
    with vm.load(GGUF, device=device, dtype="float32") as model:
        for name in names:
            check_prompt(model, golden(name, "f32w"), tokens)


@pytest.mark.thorough
def test_gguf_kept_packed_in_float_compute_equals_transformers() -> None:
    with vm.load(GGUF, device="cpu", compute="float32") as model:
        for name in NAMES:
            check_prompt(model, golden(name, "f32w"))


@pytest.mark.thorough
def test_bf16_directory_equals_transformers_on_the_cpu(bf16_directory: Path) -> None:
    with vm.load(str(bf16_directory), device="cpu") as model:
        for name in NAMES:
            check_prompt(model, golden(name, "bf16w"))


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_gpu_equals_transformers() -> None:
    with vm.load(GGUF, device="gpu") as model:
        check_prompt(model, golden("plain_capital", "f32w"), tokens=4)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_gpu_runs_the_bf16_directory(bf16_directory: Path) -> None:
    with vm.load(str(bf16_directory), device="gpu") as model:
        check_prompt(model, golden("plain_capital", "bf16w"), tokens=2)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [None, "int8:g32", "int4:g32"])
def test_int8_activations_stay_near_float_activations(dtype: str | None) -> None:
    with (
        vm.load(GGUF, device="cpu", dtype=dtype, compute="float32") as exact,
        vm.load(GGUF, device="cpu", dtype=dtype, compute="int8") as fast,
    ):
        agreement = teacher_forced(exact, fast, "f32w")
    assert agreement.top1 >= 0.95, agreement
    assert agreement.kl <= 0.01, agreement
    assert agreement.nmse <= 2e-3, agreement
