"""Weights that nobody meant: names and shapes of any kind end as a finding or as an error of this package."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import UnsupportedError, VolumetricError
from volumetric.base.registry import Registry
from volumetric.detect import Assumptions, detect, detect_model
from volumetric.loaders import open_model
from volumetric.loaders.safetensors import SafetensorsFile

PARTS = (
    *("weight", "bias", "q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "up_proj", "down_proj", "gate_proj"),
    *("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "weight_hr_l0", "kernel", "recurrent_kernel", "W", "R", "B", "P"),
    *("running_mean", "running_var", "embeddings", "conv1", "bn1", "fc", "layers", "0", "1", "7", "experts", "router"),
    *("lm_head", "embed_tokens", "model", "self_attn", "mlp", "inv_freq", "layer1", "downsample", "forward_lstm"),
    *("backward_lstm", "", "²", "9" * 400, "-1", "x" * 300, "self", "norm", "gamma", "beta", "alibi_slopes"),
)
SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 16)


def header_only(path: Path, shapes: dict[str, list[int]]) -> str:
    """Write a file of zeros with these tensors."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    return str(path)


def random_shapes(rng: np.random.Generator) -> dict[str, list[int]]:
    def name() -> str:
        return ".".join(rng.choice(PARTS, rng.integers(1, 6)).tolist())

    def shape() -> list[int]:
        return rng.choice(SIZES, rng.integers(0, 6)).tolist()

    return {name(): shape() for _ in range(rng.integers(1, 40))}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_random_names_and_shapes_end_as_findings_or_errors(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    given: list[dict[str, Any] | bool] = [
        True,
        {"activation": "relu", "stride": 1, "padding": 1, "input_shape": [3, 8, 8]},
        {"activation": {}, "stride": "x"},
        {"num_attention_heads": 2, "rope_theta": 1e4},
    ]
    for number in range(40):
        source = header_only(tmp_path / f"{number}.safetensors", random_shapes(rng))
        for guess in given:
            with contextlib.suppress(VolumetricError):
                model = open_model(source, guess=guess)
                for store in model.params.values():
                    store.values()


@pytest.mark.thorough
@pytest.mark.timeout(120)  # quadratic work would take an hour
def test_tens_of_thousands_of_tensors_are_looked_at_once(tmp_path: Path) -> None:
    shapes = {f"model.layers.{i}.mlp.up_proj.weight": [1, 1] for i in range(10_000)}
    shapes |= {f"{i}.weight": [2, 2] for i in range(10_000)}
    found = detect_model(header_only(tmp_path / "many.safetensors", shapes))
    assert found is not None
    assert found.architecture == ""


def test_names_of_many_parts_do_not_make_a_deep_tree(tmp_path: Path) -> None:
    source = header_only(tmp_path / "deep.safetensors", {"a." * 100_000 + "weight": [2, 2], "b/" * 9_000: [3]})
    found = detect(SafetensorsFile(source), Assumptions(), source)
    assert len(found.findings) == 2


def test_a_stack_whose_number_of_layers_is_enormous(tmp_path: Path) -> None:
    shapes: dict[str, list[int]] = {"model.embed_tokens.weight": [4, 2], "model.norm.weight": [2]}
    for part, shape in (("q_proj", [2, 2]), ("k_proj", [2, 2]), ("v_proj", [2, 2]), ("o_proj", [2, 2])):
        shapes[f"model.layers.999999999.self_attn.{part}.weight"] = shape
    found = detect_model(header_only(tmp_path / "far.safetensors", shapes))
    assert found is not None
    assert found.architecture == ""


def test_without_its_entry_points_the_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header_only(tmp_path / "model.safetensors", {"a.weight": [2, 2]})
    monkeypatch.setattr("volumetric.loaders.loaded_model.UNCONFIGURED", Registry[Any]())
    with pytest.raises(UnsupportedError, match="opens weights without a configuration") as raised:
        open_model(tmp_path)
    assert "reinstall the package" in (raised.value.hint or "")
