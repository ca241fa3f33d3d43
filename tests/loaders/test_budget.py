"""Types by budget: measured damage ranks as the real one, and the budget is kept where it hurts least."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError, SpecError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Scheme
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.calibration import TensorDamage, calibrate_params, measure_damage
from volumetric.loaders.calibration.allocation import candidates_for, choose
from volumetric.loaders.convert_model import convert_model, convert_weights
from volumetric.loaders.target_schemes import target_schemes
from volumetric.network import Params
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
Q = {name: Scheme.parse(name) for name in ("int4:g32", "q5_0", "int8:g32")}
IDS = np.random.default_rng(4).integers(3, 90, 96).tolist()


def predictions(model: LoadedModel, params: Params, ids: list[int]) -> F32Array:
    run = ReferenceDevice().compile(lower(model.network), params)
    logits = run.forward(run.new_state(), np.array(ids, np.int32), last_only=False).astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def divergence(model: LoadedModel, params: Params) -> float:
    p, q = (predictions(model, each, IDS) for each in (model.params, params))
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


@pytest.mark.thorough
def test_damage_is_that_of_the_tensor_alone() -> None:
    model = open_model(str(TINY / "llama"))
    # Trained models have some tensors that matter more; fresh ones do not, so a few are made larger.
    rng, stores = np.random.default_rng(1), dict(model.params)
    for key, store in stores.items():
        if len(store.shape) == 2:
            larger = store.copy()
            larger.assign(store.values() * np.float32(np.exp(rng.normal())))
            stores[key] = larger
    model = dataclasses.replace(model, params=Params(stores))
    coarse = Scheme.parse("int4:g32")
    keys = [key for key, spec in model.network.param_specs().items() if spec.packable][:12]
    found = measure_damage(model, IDS, {key: [coarse, Q["int8:g32"]] for key in keys})
    assert [damage.key for damage in found] == keys
    assert all(damage.nats[coarse] > 20 * damage.nats[Q["int8:g32"]] for damage in found)
    real = [divergence(model, calibrate_params(model, IDS, {damage.key: coarse})) for damage in found]
    ranks = np.array([np.argsort(np.argsort(values)) for values in (real, [of.nats[coarse] for of in found])])
    assert np.asarray(np.corrcoef(ranks))[0, 1] > 0.8
    assert 0.3 < sum(damage.nats[coarse] for damage in found) / sum(real) < 3


def damages() -> list[TensorDamage]:
    schemes = list(Q.values())
    costs = {"a": (1.0, 0.1, 0.0), "b": (8.0, 1.0, 0.0), "c": (1.0, 0.1, 0.0), "d": (0.5, 0.6, 0.0)}
    return [TensorDamage(key, (10, 64), dict(zip(schemes, nats, strict=True))) for key, nats in costs.items()]


def test_bits_go_where_they_save_most() -> None:
    def taken(bits: float, groups: dict[str, list[str]] | None = None) -> dict[str, str]:
        return {choice.name: str(choice.scheme) for choice in choose(damages(), bits, groups=groups or {})}

    assert set(taken(4.5).values()) == {"int4:g32"}
    assert taken(4.8) == {"a": "int4:g32", "b": "q5_0", "c": "int4:g32", "d": "int4:g32"}
    assert taken(5.3) == {"a": "q5_0", "b": "q5_0", "c": "q5_0", "d": "int4:g32"}
    assert set(taken(8.5).values()) == {"int8:g32"}
    grouped = choose(damages(), 5.3, groups={"both": ["a", "c"]})
    assert {choice.name: choice.keys for choice in grouped} == {"both": ("a", "c"), "b": ("b",), "d": ("d",)}
    with pytest.raises(UnsupportedError, match=r"the coarsest types take 4\.50"):
        choose(damages(), 4.4, groups={})


@pytest.mark.thorough
@pytest.mark.parametrize(("form", "bits"), [("native", 5.2), ("gguf", 5.6)])
def test_models_keep_the_budget(form: str, bits: float, tmp_path: Path) -> None:
    target = tmp_path / ("m.gguf" if form == "gguf" else "m")
    family = "llama" if form == "gguf" else "mixtral"
    made = convert_model(str(TINY / family), target, bits=bits, calibrate=IDS)
    again = open_model(str(target))
    sizes = [store.scheme.nbytes(store.shape) * 8 for store in made.params.values()]
    assert sum(sizes) <= bits * sum(int(np.prod(store.shape)) for store in made.params.values())
    assert len({str(store.scheme) for store in again.params.values()}) > 2
    assert again.damage == pytest.approx(made.damage, rel=1e-6)
    assert made.damage.keys() == {
        key for key, store in made.params.items() if len(store.shape) == 2 and "/gate/" not in key
    }
    for key, store in again.params.items():
        np.testing.assert_array_equal(store.values(), made.params[key].values())
    for plane in (
        (1, 2) if form == "native" else ()
    ):  # experts share a type for each of their matrices; the router is as it was
        assert len({made.params[f"{plane}.0.0.4/{i}/up.weight"].scheme for i in range(4)}) == 1
        assert str(made.params[f"{plane}.0.0.4/gate/weight"].scheme) == "float32"


@pytest.mark.thorough
def test_what_a_tensor_is_stored_in_costs_nothing(tmp_path: Path) -> None:
    convert_model(str(TINY / "llama"), tmp_path / "m", dtype="int4:g32")
    first = open_model(str(tmp_path / "m"))
    made = convert_model(str(tmp_path / "m"), tmp_path / "n", bits=20, calibrate=IDS)
    assert not any(made.damage.values())
    for key, store in made.params.items():
        np.testing.assert_array_equal(store.values(), first.params[key].values())


def test_routers_stay_unless_they_are_named() -> None:
    network = open_model(str(TINY / "qwen2_moe")).network
    routers = [key for key in network.param_specs() if key.endswith("/gate/weight")]
    assert len(routers) == 4
    for dtype in ("int4:g32", "q4_k", "int8", "fp8"):
        assert not any(target_schemes(network, dtype)[key] for key in routers)
    assert all(str(target_schemes(network, "bf16")[key]) == "bfloat16" for key in routers)
    named = target_schemes(network, "int4:g32", {"1.*/gate/weight": "int8:g32", "*/gate/weight": "float16"})
    assert [str(named[key]) for key in routers] == ["int8:g32"] * 2 + ["float16"] * 2


@pytest.mark.thorough
def test_named_types(tmp_path: Path) -> None:
    types = {"*/down.weight": "q4_k", "2.*": "int8:g32"}
    made = convert_model(str(TINY / "llama"), tmp_path / "m", dtype="int4:g32", tensor_types=types)
    found = {key: str(store.scheme) for key, store in made.params.items()}
    assert (found["1.0.0.4/down.weight"], found["2.0.0.4/up.weight"]) == ("q5_0", "int8:g32")  # rows fill no 256
    assert (found["2.0.0.4/down.weight"], found["1.0.0.4/up.weight"]) == ("q5_0", "int4:g32")
    chosen = convert_model(str(TINY / "llama"), tmp_path / "n", bits=5, tensor_types={"2.*": "int4:g32"}, calibrate=IDS)
    assert all(str(chosen.params[key].scheme) == "int4:g32" for key in found if key.startswith("2.") and "q." in key)
    assert not any(key.startswith("2.") for key in chosen.damage)
    with pytest.raises(SpecError, match="matches no matrix"):
        target_schemes(made.network, None, {"nothing": "int8"})
    with pytest.raises(DTypeError):
        target_schemes(made.network, None, {"*": "int99"})


def test_what_cannot_be_chosen_is_named(tmp_path: Path) -> None:
    source = str(TINY / "llama")
    for message, asked in {
        "needs a text": {"bits": 5},
        "exclude each other": {"bits": 5, "dtype": "int4:g32", "calibrate": IDS},
        "too few: the coarsest": {"bits": 0.5, "calibrate": IDS},
        "nan bits per weight are not a positive": {"bits": float("nan"), "calibrate": IDS},
        "the text has 3 tokens": {"bits": 5, "calibrate": [3, 4, 5]},
    }.items():
        with pytest.raises(UnsupportedError, match=message):
            convert_model(source, tmp_path / "m", **asked)
    for target, bits in {"m": 0.5, "m.gguf": 3.5}.items():  # before anything is measured: the text is too short for it
        with pytest.raises(UnsupportedError, match=f"{bits} bits per weight are too few: the coarsest types take"):
            convert_model(source, tmp_path / target, bits=bits, calibrate=[3, 4, 5])
    with pytest.raises(UnsupportedError, match="plain floats"):
        convert_model(source, tmp_path / "m", format="hf", bits=5, calibrate=IDS)
    with pytest.raises(UnsupportedError, match="GGUF cannot store tensors of int2"):
        convert_model(source, tmp_path / "m.gguf", tensor_types={"*": "int2"})
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@pytest.mark.parametrize(("key", "bits"), [("1.0.0.0/weight", None), ("1.0.0.0/weight", 5.0), ("3.0.0.0/weight", 5.0)])
def test_models_that_overflow_are_refused(key: str, bits: float | None) -> None:
    model = open_model(str(TINY / "llama"))
    gain = model.params[key].copy()
    gain.assign(np.full(gain.shape, 3e38, np.float32))
    broken = dataclasses.replace(model, params=Params({**model.params, key: gain}))
    with pytest.raises(UnsupportedError, match="not finite"):
        convert_weights(broken, None if bits else "q3_k", bits=bits, text=IDS)


def test_candidates_fit_rows() -> None:
    for columns in (32, 96, 256, 4096, 40):
        for scheme in candidates_for(columns, whole=True):
            size = scheme.blocks.size if scheme.blocks else scheme.group
            assert size
            assert columns % size == 0
            assert scheme.gguf_type
    assert not candidates_for(40, whole=True)
    q3_nl = Scheme.parse("q3_nl")
    assert [q3_nl in candidates_for(columns, whole=False) for columns in (576, 256, 40)] == [True, True, False]


@pytest.mark.thorough
def test_encoders_are_measured_and_calibrated(tmp_path: Path) -> None:
    ids = np.random.default_rng(2).integers(5, 90, 200).tolist()
    made = convert_model(TINY.with_name("hf_encoders") / "bert_masked", tmp_path / "m", bits=8.5, calibrate=ids)
    assert len(made.damage) > 4
    assert made.network.inputs.keys() == {"token_type_ids"}
