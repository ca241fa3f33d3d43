"""Rounding for a text: what products put out changes less than with plain rounding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import DTypeError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Packed, Scheme, decode, encode
from volumetric.loaders import LoadedModel, open_model
from volumetric.loaders.calibration import calibrate_params, error_feedback
from volumetric.loaders.calibration.code_levels import fit
from volumetric.loaders.calibration.error_feedback import InputStatistics, quantise
from volumetric.loaders.calibration.scale_search import search
from volumetric.loaders.convert_model import Format, convert_model, save_model
from volumetric.loaders.target_schemes import target_schemes
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.run.lower import lower

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
SCHEMES = (
    "int4:g32",
    "uint4:g32",
    "uint2:g32:float32",
    "int4:g64",
    "int4:row",
    "q2_k",
    "q3_k",
    "q3_nl",
    "iq4_nl",
    "mxfp4",
)


def inputs(k: int, rows: int = 400) -> np.ndarray:
    """Correlated inputs, some columns much larger than others, one always 0."""
    rng = np.random.default_rng(k)
    mixed = rng.standard_normal((rows, k)) @ (rng.standard_normal((k, k)) + 2 * np.eye(k))
    mixed *= np.exp(rng.standard_normal(k))
    mixed[:, k // 2] = 0
    return mixed.astype(np.float32)


@pytest.mark.parametrize("k", [1, 31, 160])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_outputs_change_less_than_with_plain_rounding(scheme: str, k: int) -> None:
    x, weight = inputs(k), np.random.default_rng(1).standard_normal((23, k)).astype(np.float32)
    packed = quantise(weight, InputStatistics(x.T @ x), Scheme.parse(scheme))
    assert (str(packed.scheme), packed.shape) == (scheme, (23, k))
    errors = [((x @ (decode(p) - weight).T) ** 2).mean() for p in (packed, encode(weight, scheme))]
    if k == 1:  # the only input is always 0
        assert errors[0] == errors[1] == 0
    else:
        assert errors[0] < (0.6 if k > 64 else 1.0) * errors[1]


def test_without_correlation_nothing_is_passed_on() -> None:
    weight = np.random.default_rng(2).standard_normal((5, 64)).astype(np.float32)
    packed = quantise(weight, InputStatistics(np.eye(64)), Scheme.parse("int4:g32"))
    for first in (0, 32):
        group = weight[:, first : first + 32]
        rule = search(group, np.ones(32, np.float32), Scheme.parse("int4:g32"))
        np.testing.assert_array_equal(decode(packed)[:, first : first + 32], rule.values(rule.codes(group)))


@pytest.mark.parametrize("scheme", ["int4:g32", "uint4:g32", "int2:g32"])
def test_important_numbers_are_kept_better(scheme: str) -> None:
    x = np.random.default_rng(3).standard_normal((200, 32)).astype(np.float32)
    importance = np.where(np.arange(32) < 4, 1000, 1).astype(np.float32)
    rules = [search(x, weight, Scheme.parse(scheme)) for weight in (importance, np.ones(32, np.float32))]
    important, flat = (((rule.values(rule.codes(x)) - x)[:, :4] ** 2).mean() for rule in rules)
    assert important < 0.7 * flat


@pytest.mark.parametrize("name", ["q2_k", "q3_k", "q4_k", "q6_k", "q5_0", "q5_1", "iq4_nl", "iq4_xs", "mxfp4", "tq2_0"])
def test_codes_of_blocks_are_those_of_the_encoder(name: str) -> None:
    """With inputs that do not depend on each other errors stay where they are; scales are the encoder's own."""
    weight = np.random.default_rng(6).standard_normal((5, 300)).astype(np.float32)
    size = np.exp(np.random.default_rng(7).standard_normal(300)).astype(np.float32)
    inputs = InputStatistics(np.diag(size))
    found, wanted = quantise(weight, inputs, Scheme.parse(name)), encode(weight, name, importance=inputs.importance)
    np.testing.assert_allclose(decode(found), decode(wanted), atol=2e-3 * np.abs(decode(wanted)).max())
    assert np.mean(decode(found) == decode(wanted)) > 0.99
    rows = fit(weight, inputs.importance, Scheme.parse(name)).round_nearest(weight)
    np.testing.assert_allclose(rows, decode(found), rtol=1e-6, atol=1e-6)


def test_large_matrices_are_rounded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = inputs(64), np.random.default_rng(1).standard_normal((23, 64)).astype(np.float32)
    for name in ("int4:g32", "uint4:g32", "q5_0"):
        whole = quantise(weight, InputStatistics(x.T @ x), Scheme.parse(name))
        with monkeypatch.context() as patch:
            patch.setattr(error_feedback, "_CHUNK", 64 * 5)
            parts = quantise(weight, InputStatistics(x.T @ x), Scheme.parse(name))
        assert parts.shape == whole.shape
        np.testing.assert_allclose(decode(parts), decode(whole), atol=0.02)


def test_groups_of_zeros_and_of_one_number() -> None:
    weight = np.zeros((2, 64), np.float32)
    weight[1, :32] = 3.5
    for scheme in ("int4:g32", "uint4:g32"):
        found = decode(quantise(weight, InputStatistics(np.eye(64)), Scheme.parse(scheme)))
        np.testing.assert_allclose(found, weight, rtol=1e-3)  # scales are float16


@pytest.mark.parametrize("scheme", ["bfloat16", "float8_e4m3fn:row", "ternary:row", "int16:row"])
def test_other_types_are_refused(scheme: str) -> None:
    with pytest.raises(DTypeError, match="cannot be calibrated"):
        quantise(np.ones((2, 2), np.float32), InputStatistics(np.eye(2)), Scheme.parse(scheme))


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(DTypeError, match="NaN or infinite"):
        quantise(np.array([[1, np.nan]], np.float32), InputStatistics(np.eye(2)), Scheme.parse("int4:g32"))


def logits(model: LoadedModel, ids: np.ndarray) -> np.ndarray:
    run = ReferenceDevice().compile(lower(model.network), model.params)
    return run.forward(run.new_state(), ids, last_only=False)


@pytest.mark.thorough
def test_models_are_closer_to_themselves() -> None:
    model = open_model(str(TINY / "llama"))
    rng = np.random.default_rng(4)
    ids, unseen = rng.integers(3, 300, 1024), rng.integers(3, 300, 200).astype(np.int32)
    targets = target_schemes(model.network, "int4:g32")
    params = calibrate_params(model, ids.tolist(), targets)
    assert {key: store.scheme for key, store in params.items() if targets[key]} == {
        key: scheme for key, scheme in targets.items() if scheme
    }
    right = logits(model, unseen)
    plain = logits(open_model(str(TINY / "llama"), dtype="int4:g32"), unseen)
    found = logits(dataclasses.replace(model, params=params), unseen)
    assert ((found - right) ** 2).mean() < 0.8 * ((plain - right) ** 2).mean()


@pytest.mark.thorough
def test_calibrated_models_are_written_and_opened(tmp_path: Path) -> None:
    ids = np.random.default_rng(5).integers(3, 300, 200).tolist()
    made = convert_model(str(TINY / "llama"), tmp_path / "out", dtype="int4:g32", calibrate=ids)
    again = open_model(str(tmp_path / "out"))
    unseen = np.arange(3, 40, dtype=np.int32)
    np.testing.assert_array_equal(logits(made, unseen), logits(again, unseen))
    assert any(str(store.scheme) == "int4:g32" for store in again.params.values())


def test_what_cannot_be_calibrated_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="the text has 5 tokens"):
        convert_model(str(TINY / "llama"), tmp_path / "a", dtype="int4", calibrate=[3, 4, 5, 6, 7])
    with pytest.raises(UnsupportedError, match="needs a type"):
        convert_model(str(TINY / "llama"), tmp_path / "a", calibrate=[3] * 100)
    with pytest.raises(UnsupportedError, match="no tokenizer"):
        convert_model(str(TINY / "llama"), tmp_path / "a", dtype="int4", calibrate="a text")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("form", ["native", "hf", "gguf"])
def test_interrupted_conversions_leave_nothing(form: Format, tmp_path: Path) -> None:
    model = open_model(str(TINY / "llama"))

    def interrupted() -> Packed:
        raise KeyboardInterrupt

    key = list(model.params)[-1]
    store = model.params[key]
    stopped = WeightStore(store.shape, store.scheme, interrupted)
    broken = dataclasses.replace(model, params=Params({**model.params, key: stopped}))
    target = tmp_path / ("out.gguf" if form == "gguf" else "out")
    with pytest.raises(KeyboardInterrupt):
        save_model(target, broken, form)
    assert not list(tmp_path.iterdir())
    if form != "gguf":  # what was there stays
        save_model(target, model, form)
        before = {path.name: path.read_bytes() for path in target.iterdir()}
        with pytest.raises(KeyboardInterrupt):
            save_model(target, broken, form)
        assert {path.name: path.read_bytes() for path in target.iterdir()} == before
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
