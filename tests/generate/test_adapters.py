"""LoRA adapters: the logits of PEFT on every device, scaled and switched while the base weights stay where they are."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.dtypes import decode
from volumetric.generate import Model, load
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.convert_model import Format, convert_model, open_merged, save_model
from volumetric.loaders.peft import read_adapter, save_adapter
from volumetric.loaders.peft_merge import parse_adapter
from volumetric.loaders.target_schemes import convert, target_schemes
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.device import RunOptions
from volumetric.run.shared_weights import Updatable
from volumetric.train import LowRank

FIXTURES = Path(__file__).parents[1] / "fixtures"
PEFT, TINY = FIXTURES / "peft", FIXTURES / "hf_tiny"
EXPECTED: dict[str, Any] = json.loads((PEFT / "expected.json").read_text())


def opened(name: str, lora: list[str], dtype: str | None = None) -> Model:
    paths = [str(PEFT / text) for text in lora]
    return load(str(TINY / "llama"), device=device(name), dtype=dtype, compute="float32", context=64, lora=paths)


def last(model: Model) -> np.ndarray:
    return model.logits(EXPECTED["ids"])[-1]


CASES = [("reference", "plain"), ("reference", "wide"), ("reference", "saved"), ("cpu", "saved"), ("cpu", "wide")]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "case"), [*CASES, ("gpu", "plain:0.5 wide")])
def test_logits_are_those_of_peft(name: str, case: str) -> None:
    model = opened(name, case.split())
    np.testing.assert_allclose(last(model), EXPECTED[case], rtol=1e-4, atol=2e-4)
    assert dict(model.adapters) == dict(parse_adapter(text) for text in case.split())


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_scales_change_while_the_model_runs(name: str) -> None:
    model = opened(name, ["plain", "wide:0"])
    before = model.executable
    for scales, case in (((1, 0), "plain"), ((0, 1), "wide"), ((0, 0), "base"), ((0.5, 1), "plain:0.5 wide")):
        for adapter, scale in zip(("plain", "wide"), scales, strict=True):
            model.set_adapter(adapter, scale)
        np.testing.assert_allclose(last(model), EXPECTED[case], rtol=1e-4, atol=2e-4)
    assert model.executable is before


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_base_weights_stay_packed(name: str) -> None:
    """Beside int4 weights an adapter adds the same as beside floats: its product with the rows that they read."""
    plain, adapted = opened(name, [], "int4:g32"), opened(name, ["wide"], "int4:g32")
    reference = opened("reference", ["wide"], "int4:g32")
    np.testing.assert_allclose(last(adapted), last(reference), rtol=1e-3, atol=1e-3)
    assert {str(s.scheme) for s in adapted.params.values()} == {str(s.scheme) for s in plain.params.values()}
    if name != "reference":
        assert adapted.executable.memory.weights < plain.executable.memory.weights + 150_000


def test_adapters_are_merged_and_written(tmp_path: Path) -> None:
    model = opened("reference", ["plain:0.5", "wide"])
    save_model(tmp_path / "merged", model.merge())
    again = load(str(tmp_path / "merged"), device=device("reference"), context=64)
    np.testing.assert_allclose(last(again), EXPECTED["plain:0.5 wide"], rtol=1e-4, atol=2e-4)


def adapted_keys(path: Path, model: LoadedModel) -> set[str]:
    adapter = read_adapter(path, model)
    return {*adapter.factors, *adapter.replaced}


@pytest.mark.parametrize("form", ["native", "hf", "gguf"])
def test_conversions_merge_adapters(form: Format, tmp_path: Path) -> None:
    lora = [str(PEFT / "plain:0.5"), str(PEFT / "wide")]
    target = tmp_path / ("out.gguf" if form == "gguf" else "out")
    convert_model(TINY / "llama", target, format=form, lora=lora)
    again = load(str(target), device=device("reference"), context=64)
    np.testing.assert_allclose(last(again), EXPECTED["plain:0.5 wide"], rtol=1e-4, atol=2e-4)


def test_merged_weights_are_rounded_once(tmp_path: Path) -> None:
    lora = [str(PEFT / "saved"), str(PEFT / "wide:0.5")]
    made = convert_model(TINY / "llama", tmp_path / "out", dtype="int4:g32", lora=lora)
    merged, targets = open_merged(TINY / "llama", lora), target_schemes(made.network, "int4:g32")
    for key, store in open_model(tmp_path / "out").params.items():
        whole = merged.params[key].packed()
        np.testing.assert_array_equal(store.values(), decode(convert(whole, targets[key])))
        assert store.scheme == made.params[key].scheme == (targets[key] or whole.scheme)
    plain = open_model(TINY / "llama")
    changed = {key for key, s in plain.params.items() if not np.array_equal(s.values(), merged.params[key].values())}
    assert changed == {key for name in ("saved", "wide") for key in adapted_keys(PEFT / name, plain)}


def test_generation_goes_on_with_another_adapter() -> None:
    model = opened("cpu", ["wide:0"])
    base = model.generate(EXPECTED["ids"], max_tokens=8, temperature=0.0).token_ids
    model.set_adapter("wide")
    other = model.generate(EXPECTED["ids"], max_tokens=8, temperature=0.0).token_ids
    assert other == opened("cpu", ["wide"]).generate(EXPECTED["ids"], max_tokens=8, temperature=0.0).token_ids
    model.set_adapter("wide", 0)
    assert model.generate(EXPECTED["ids"], max_tokens=8, temperature=0.0).token_ids == base != other


def test_wrong_names_and_scales_are_named() -> None:
    model = opened("reference", ["plain", "saved"])
    with pytest.raises(SpecError, match="unknown adapter 'other'"):
        model.set_adapter("other")
    with pytest.raises(SpecError, match="scale of adapter plain"):
        model.set_adapter("plain", float("nan"))
    with pytest.raises(UnsupportedError, match="replaces whole modules"):
        model.set_adapter("saved", 0.5)
    for scale in (0.5, 0, -1, 2):
        with pytest.raises(UnsupportedError, match="replaces whole modules"):
            opened("reference", [f"saved:{scale}"])
    assert opened("reference", ["saved:1.0"]).adapters == {"saved": 1.0}


def changed(home: Path, **settings: Any) -> str:
    target = home / "plain"
    shutil.copytree(PEFT / "plain", target)
    config = target / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    return str(target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3 is not supported"),
        ({"bias": "all"}, "biases"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
    ],
)
def test_variants_are_refused_by_name(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        load(str(TINY / "llama"), device="reference", lora=[changed(tmp_path, **settings)])


def test_adapters_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no module"):
        load(str(TINY / "gpt2"), device="reference", lora=[str(PEFT / "plain")])
    with pytest.raises(CheckpointError, match="has no adapter_config"):
        load(str(TINY / "llama"), device="reference", lora=[str(tmp_path)])
    for n, alpha in enumerate(("x", True, None, [8], math.inf, -math.inf, math.nan)):
        with pytest.raises(CheckpointError, match="lora_alpha"):
            load(str(TINY / "llama"), device="reference", lora=[changed(tmp_path / str(n), lora_alpha=alpha)])


def test_trained_overlays_are_written_as_peft_reads_them(tmp_path: Path) -> None:
    model = open_model(str(TINY / "llama"))
    overlay = LowRank(rank=3, alpha=6.0, targets=("*/q.weight", "*/down.weight"), seed=1)
    factors = overlay.begin(model.params)
    rng = np.random.default_rng(2)
    factors = {key: value + 0.1 * rng.standard_normal(value.shape).astype(np.float32) for key, value in factors.items()}
    save_adapter(tmp_path / "own", model, factors, rank=overlay.rank, alpha=overlay.alpha)
    found = read_adapter(tmp_path / "own", model)
    assert set(found.factors) == {key.removesuffix(":a") for key in factors if key.endswith(":a")}
    for key, (down, up) in found.factors.items():
        np.testing.assert_allclose(up @ down, overlay.delta(key, factors), rtol=1e-5, atol=1e-6)
    adapted = load(str(TINY / "llama"), device=device("reference"), context=64, lora=[tmp_path / "own"])
    merged = dataclasses.replace(model, params=overlay.merge(model.params, factors))
    right = Model(merged, device("reference"), RunOptions(context=64))
    np.testing.assert_allclose(last(adapted), last(right), rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", [None, "int4:g64"])
def test_models_of_one_base_keep_its_weights_once(name: str, dtype: str | None) -> None:
    """Base and adapters have the bits that each has alone, also when others are closed."""
    adapters: list[list[str]] = [[], ["plain"], ["wide"], ["saved"]]
    apart = [opened(name, lora, dtype) for lora in adapters]
    expected = [last(model) for model in apart]
    base = opened(name, [], dtype)
    models = [base.with_adapters([PEFT / one for one in lora]) for lora in adapters]
    for model, right in zip(models, expected, strict=True):
        np.testing.assert_array_equal(last(model), right)
    assert [dict(model.adapters) for model in models] == [dict(model.adapters) for model in apart]
    if name == "cpu":
        whole = apart[0].executable.memory.weights
        own = [model.executable.memory.weights for model in models]
        factors = [one.executable.memory.weights - whole for one in apart]
        assert own[0] < whole / 16  # gains of norms
        assert [one - own[0] for one in own[1:3]] == factors[1:3]
        assert own[3] < whole + factors[3]  # it replaces embedding and head, which are its own
    base.close()
    models[0].close()
    np.testing.assert_array_equal(last(models[1]), expected[1])
    models[1].set_adapter("plain", 0)
    np.testing.assert_array_equal(last(models[2]), expected[2])


def test_weights_that_several_models_use_are_not_replaced_under_them() -> None:
    base = opened("cpu", [])
    again = base.with_adapters([PEFT / "plain"])
    (key, *_) = (key for key in base.params if key.endswith("o.weight"))
    other = Params({key: WeightStore.from_array(base.params[key].values())})
    for model in (base, again):
        assert isinstance(model.executable, Updatable)
        with pytest.raises(UnsupportedError, match="is shared by several models"):
            model.executable.update(other)


def test_adapters_of_embeddings_are_merged(tmp_path: Path) -> None:
    base, adapter = TINY / "llama_untied_rope3", PEFT / "embedding"
    convert_model(base, tmp_path / "m", lora=adapter)
    with load(tmp_path / "m", device="reference") as model:
        np.testing.assert_allclose(last(model), EXPECTED["embedding"], rtol=1e-4, atol=2e-4)
    with pytest.raises(UnsupportedError, match="not the weight of a product only") as caught:
        load(base, device="reference", lora=adapter)
    assert "convert --lora" in (caught.value.hint or "")
    with pytest.raises(UnsupportedError, match=r"adapter of 'model.embed_tokens' .* head are tied"):
        convert_model(TINY / "llama", tmp_path / "t", lora=adapter)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_one_adapter_needs_no_list(pair: bool, listed: bool) -> None:
    one: Any = (PEFT / "plain", 0.0) if pair else str(PEFT / "plain")
    with load(TINY / "llama", device="reference", context=64, lora=[one] if listed else one) as model:
        assert dict(model.adapters) == {"plain": 0.0 if pair else 1.0}


@pytest.mark.parametrize("wrong", [5, "", {"a": 1.0}, [5], [("a", "b", 0.5)], ("a", True), b"path", [["a", 0.5]]])
def test_what_names_no_adapter_is_refused(wrong: Any) -> None:
    with pytest.raises(SpecError, match="is not an adapter"):
        load(TINY / "llama", device="reference", lora=wrong)


def test_modules_are_replaced_once() -> None:
    """Of two adapters that bring the same one whole, none is right."""
    with pytest.raises(UnsupportedError, match="two adapters replace"):
        open_merged(TINY / "llama", [str(PEFT / "saved"), str(PEFT / "saved")])
