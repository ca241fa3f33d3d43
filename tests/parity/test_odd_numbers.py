"""NaN, infinities and numbers near the ends of float32: one rule (docs/numbers.md) on every device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.cpu.networks import random_params
from tests.devices import DEVICES, device
from tests.layers.graphed import graphed
from tests.parity.run import agree_one, data, expected, on_device
from tests.pieces import one_row_each
from tests.train.problems import chain
from volumetric.layers import (
    Dense,
    Entmax,
    Gate,
    GridSoftmax,
    GroupNorm,
    LayerNorm,
    LayerSpec,
    MaskedSoftmax,
    MultiHeadAttention,
    Reshape,
    RMSNorm,
    Softmax,
    Sparsemax,
)
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
"""NumPy warns of what these tests are about."""

f32 = np.float32

QUANTISED = [
    *(("cpu", scheme, {}) for scheme in ("int8:g32", "int4:g32", "uint4:g32")),
    *(("gpu", scheme, {"compute": "int8"}) for scheme in ("int8:g32", "int4:g32", "uint4:g32")),
    ("cpu", "bfloat16", {"compute": "bfloat16"}),
]


def run(name: str, network: Network, x: np.ndarray, scheme: str, options: dict[str, Any]) -> list[np.ndarray]:
    """The rows of `x` as one sequence, and each as a sequence of its own in a batch."""
    plan = lower(network)
    params = random_params(plan, np.random.default_rng(0), scheme)
    executable = device(name).compile(plan, params, RunOptions(context=64, **options))
    whole = executable.forward(executable.new_state(), x, last_only=False)
    return [whole, one_row_each(executable, [executable.new_state() for _ in x], x)]


@pytest.mark.thorough
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("name", "scheme", "options"), QUANTISED)
def test_what_is_not_finite_stays_so_in_products(name: str, scheme: str, options: dict[str, Any], odd: float) -> None:
    """Of the row alone, in every column, however many rows come together; the row has two blocks of 32."""
    network = chain(Dense(in_features=64, out_features=33), inputs=64)
    for rows, row in ((1, 0), (3, 1), (12, 7)):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(f32)
        x[row, 37] = odd
        for y in run(name, network, x, scheme, options):
            if np.isnan(odd) or (name == "cpu" and scheme != "bfloat16"):
                assert np.isnan(y[row]).all()
            assert not np.isfinite(y[row]).any()
            assert np.isfinite(np.delete(y, row, axis=0)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["k", "v"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("cpu", {"kv_dtype": kind}) for kind in ("float32", "float16", "int8")] + [("gpu", {}), ("reference", {})],
)
def test_odd_keys_and_values_reach_all_rows_that_see_them(
    name: str, options: dict[str, Any], part: str, odd: float
) -> None:
    """One bias is not finite, so from the first row on every key or value of one head is not."""
    spec = MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=18, qkv_bias=True)
    plan = lower(chain(spec, inputs=12))
    stores = dict(random_params(plan, np.random.default_rng(0)))
    bias = stores[f"0.0.0.0/{part}.bias"].values().copy()
    bias[20] = odd
    params = Params(stores | {f"0.0.0.0/{part}.bias": WeightStore.from_array(bias)})
    executable = device(name).compile(plan, params, RunOptions(**options))
    x = np.random.default_rng(1).standard_normal((9, 12)).astype(f32)
    for pieces in ([9], [1] * 9, [3, 6]):
        state, start = executable.new_state(), 0
        for length in pieces:
            y = executable.forward(state, x[start : start + length], last_only=False)
            assert not np.isfinite(y).any()
            start += length


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_what_a_cache_held_before_is_forgotten(name: str) -> None:
    """Rows after a `trim` do not see what was NaN before it, also in the same panel of 16 positions."""
    network = chain(MultiHeadAttention(embed_dim=16, num_heads=2), inputs=16)
    plan = lower(network)
    params = random_params(plan, np.random.default_rng(0), "int8:g32")
    executable = device(name).compile(plan, params, RunOptions(context=64))
    x = np.random.default_rng(1).standard_normal((13, 16)).astype(f32)
    state = executable.new_state()
    executable.forward(state, np.full_like(x, np.nan))
    state.reset()
    for start, stop in ((0, 5), (5, 6), (6, 13)):
        assert np.isfinite(executable.forward(state, x[start:stop], last_only=False)).all()


HUGE = (1e9, 1e10, 1e14, 3e20, 1e38, 3.4e38)


def own(spec: LayerSpec, x: np.ndarray) -> np.ndarray:
    """The layer's own code in float32, with the parameters that it starts from."""
    p = {s.name: (np.ones if s.init == "ones" else np.zeros)(s.shape, f32) for s in spec.params()}
    return graphed(spec).forward(p, x)[0]


def on_both_paths(name: str, spec: LayerSpec, x: np.ndarray) -> list[np.ndarray]:
    """Through the fused plan where the layer has a form there, and through graphs, where the reshapes lead."""
    found = []
    for layers in ((spec,), (spec, Reshape(shape=(x.shape[1], 1)), Reshape(shape=(-1,)))):
        network = chain(*layers, inputs=x.shape[1])
        executable = device(name).compile(lower(network), initialise(network, seed=1), RunOptions())
        found.append(executable.forward(executable.new_state(), x, last_only=False))
    return found


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(
    "spec",
    [
        Softmax(),
        Softmax(temperature=0.7),
        Softmax(temperature=3.0),
        MaskedSoftmax(mask=(True,) * 20 + (False,)),
        GridSoftmax(rows=3, cols=7),
        Sparsemax(),
        Entmax(),
        Entmax(alpha=1.3),
        RMSNorm(num_features=21),
        LayerNorm(num_features=21),
    ],
    ids=lambda spec: f"{spec.kind}-{getattr(spec, 'temperature', getattr(spec, 'alpha', ''))}",
)
def test_numbers_near_the_end_of_float32(spec: LayerSpec, name: str) -> None:
    """Probabilities sum to 1 however large the logits; norms of what has no square in float32 are 0."""
    rng = np.random.default_rng(0)
    rows = [np.where(np.arange(21) % 4, -value, value) for value in HUGE]
    rows += [np.full(21, -value) for value in HUGE]
    rows += [rng.standard_normal(21) * value / 4 for value in HUGE[:-1]]
    x = np.array(rows, f32)
    for y in on_both_paths(name, spec, x):
        for row, got, want in zip(x, y, own(spec, x), strict=True):
            agree_one(got, want, f"{spec} of {row[:3]}…", floor=1.0)


@pytest.mark.parametrize("name", DEVICES)
def test_a_layer_norm_loses_nothing_to_a_large_mean(name: str) -> None:
    """Against float64 on the same float32 numbers; a mean rounded to float32 would be off by 5e-4 of the spread.

    By itself, through graphs, and as part of the product that reads it, of many rows and of one.
    """
    x = (np.random.default_rng(0).standard_normal((5, 77)) + 1e4).astype(f32)
    spec, product = LayerNorm(num_features=77), Dense(in_features=77, out_features=5, bias=False)
    want = graphed(spec).forward({"weight": np.ones(77), "bias": np.zeros(77)}, x.astype(np.float64))[0]
    for kind in (spec, GroupNorm(num_groups=1, num_channels=77)):
        for y in on_both_paths(name, kind, x):
            agree_one(y, want, kind.kind)
    network = chain(spec, product, inputs=77)
    params = initialise(network, seed=1)
    executable = device(name).compile(lower(network), params, RunOptions())
    for rows in (5, 1):
        y = executable.forward(executable.new_state(), x[:rows], last_only=False)
        agree_one(y, want[:rows] @ params["1.0.0.0/weight"].values().T, f"norm and product of {rows} rows")


LOGITS = np.array([[1, 2, 0.5, -1], [0.3, 0.7, 1, 2], [0.3, 1, 1, 2], [1, 2, 3, 4]], f32)

SWITCHING: dict[str, LayerSpec] = {
    "softmax": Softmax(temperature=0.5),
    "masked": MaskedSoftmax(mask=(True, False, True, True)),
    "sparsemax": Sparsemax(),
    "entmax": Entmax(),
    "entmax 1.3": Entmax(alpha=1.3),
    "gate": Gate(in_features=4, out_features=3, top_k=2),
    "open gate": Gate(in_features=4, out_features=3),
    "gate of all": Gate(in_features=4, out_features=3, top_k=2, scoring="softmax_all"),
    "sigmoid gate": Gate(in_features=4, out_features=3, top_k=2, scoring="sigmoid"),
    "rms": RMSNorm(num_features=4),
    "layer": LayerNorm(num_features=4),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("spec", SWITCHING.values(), ids=SWITCHING.keys())
def test_gradients_of_odd_rows_are_odd_on_every_device(spec: LayerSpec, name: str) -> None:
    """NaN reaches the gradient of its whole row, save of what the layer switches off, which is 0."""
    of = data((spec, LOGITS.shape), seed=1)
    for odd in (np.nan, np.inf, -np.inf):
        for where in ("x", "switched off", "gy"):
            x, gy = LOGITS.copy(), of.gy.copy()
            if where == "gy":
                gy[2, 1] = odd
            else:
                x[1, 1 if where == "switched off" else 2] = odd
            case = replace(of, x=x, gy=gy)
            want = expected((spec, x.shape), case)
            for what, got in on_device(name, (spec, x.shape), case).items():
                agree_one(got, want[what], f"{what}, {odd} in {where}", floor=1.0)


def test_nan_in_logits_is_nan_in_their_gradient() -> None:
    """The rule itself, on the layers' own code."""
    for kind in ("softmax", "masked", "sparsemax", "entmax", "entmax 1.3", "gate"):
        spec = SWITCHING[kind]
        of = data((spec, LOGITS.shape), seed=1)
        x = LOGITS.copy()
        x[1, 2] = np.nan
        found = expected((spec, x.shape), replace(of, x=x))["vjp input"]
        off = [False, kind == "masked", False, False]
        np.testing.assert_array_equal(np.isnan(found[1]), ~np.array(off))
        assert np.isfinite(np.delete(found, 1, axis=0)).all()
