"""Attention tick by tick: what it keeps is bounded by its window, and streams begin anew as everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import weights
from tests.devices import DEVICES, device
from tests.oracles.clocked import NumpyClocked
from volumetric import Clocked, Coord, Every, Grid, Link, Network
from volumetric.base.errors import UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.clocked.states import stream_states
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.layers import Dense, MultiHeadAttention, Parallel, Residual, Rope, Sequential
from volumetric.network import initialise
from volumetric.run.lower import lower
from volumetric.train import MSE, SGD, Batch, LearnerOptions, LearnerState, Systolic
from volumetric.train.device_learner import DeviceLearner

NEAR = MultiHeadAttention(embed_dim=4, num_heads=2, num_kv_heads=1, window=3, rope=Rope(dim=2))
CHUNKED = MultiHeadAttention(embed_dim=4, num_heads=1, chunk=2, temperature_scale=0.5, temperature_every=2)
LAYERS = (
    NEAR,
    NEAR,  # with weights of its own
    NEAR,  # with the weights of the first, but its own states
    Sequential(layers=(Dense(in_features=4, out_features=4), CHUNKED, Residual(source="input"))),
    Parallel(branches=(NEAR, CHUNKED), combine="add"),
)
PARAMETERS = [p.name for p in NEAR.params()]
SHARED = tuple(
    Link(kind="shared", source=Coord(0), target=Coord(2), param=name, source_param=name) for name in PARAMETERS
)
LOOP = Link(kind="activation", source=Coord(3), target=Coord(0), combine="add", delay=2)
NETWORK = Network(
    grid=Grid(5),
    layers={Coord(z): layer for z, layer in enumerate(LAYERS)},
    links=(*SHARED, LOOP),
    input_shape=(4,),
    input_dtype="float32",
)
MACHINE = Clocked(network=NETWORK, clocks={Coord(1): Every(period=2, phase=1)})
X = np.random.default_rng(1).standard_normal((3, 9, 4)).astype(np.float32)
RESETS = (np.random.default_rng(2).random((3, 9)) < 0.25).astype(np.int64)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_ticks_are_those_of_the_definition(name: str) -> None:
    """Outputs and all that is kept, through resets out of NaN, in runs of any length."""
    params, x, resets = weights(MACHINE), X.copy(), RESETS.copy()
    x[2, 1], resets[2] = np.nan, np.arange(9) == 7
    oracle = NumpyClocked(MACHINE, params, 3)
    want = np.stack([oracle.tick({"input": x[:, t]}, resets[:, t])["output"] for t in range(9)], 1)
    assert np.isnan(want[2, 6]).all()
    assert np.isfinite(want[2, 7:]).all()
    stream: Any = device(name).stream(MACHINE, params, batch=3)
    parts = [stream.run(x[:, a:b], resets=resets[:, a:b]) for a, b in ((0, 3), (3, 4), (4, 9))]
    np.testing.assert_allclose(np.concatenate(parts, 1), want, rtol=0, atol=1e-5)
    for key, value in stream.state().items():
        np.testing.assert_allclose(value, oracle.state[key], rtol=0, atol=1e-5, err_msg=key)


def test_a_wavefront_is_the_sequence() -> None:
    network = chain([NEAR, CHUNKED], (4,))
    params = initialise(network, seed=1)
    executable = device("cpu").compile(lower(network), params)
    whole = np.stack([executable.forward(executable.new_state(), x, last_only=False) for x in X])
    stream: Any = device("cpu").stream(Clocked(network=network, start="wavefront"), params, batch=3)
    y = np.concatenate([stream.run(X), stream.run(ticks=1)], 1)
    np.testing.assert_allclose(y[:, 1:], whole, rtol=0, atol=1e-5)


@pytest.mark.thorough
def test_gradients_are_those_of_differences() -> None:
    params, mode = weights(MACHINE), Systolic(delay=4)
    batch = Batch({"input": X, "resets": RESETS}, np.random.default_rng(3).standard_normal((3, 9, 4)))
    options = LearnerOptions(mode=mode, clocked=MACHINE, optimiser=SGD(lr=1.0), loss=MSE(reduction="sum"))
    learner = DeviceLearner(NETWORK, params, options, NumpyGraphs(np.float64))
    before = learner.state
    learner.step([batch], rate=1.0)
    after, rng = learner.state.masters, np.random.default_rng(4)
    way = {key: rng.standard_normal(w.shape) for key, w in before.masters.items()}
    slope = sum(float(((before.masters[key] - after[key]) * way[key]).sum()) for key in way)
    totals = []
    for far in (1e-5, -1e-5):
        moved = {key: w + far * way[key] for key, w in before.masters.items()}
        learner.restore(LearnerState(0, moved, before.slots))
        totals.append(learner.evaluate(batch).total)
    assert slope != 0
    assert (totals[0] - totals[1]) / 2e-5 == pytest.approx(slope, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_devices_learn_alike(name: str) -> None:
    """An update, and one of the next window, which goes on from keys and values of the one before."""
    clocked = Clocked(network=chain([NEAR], (4,)))
    batch = Batch({"input": X[:, :4], "resets": RESETS[:, :4]}, X[:, 1:5])
    made = []
    for one in ("reference", name):
        options = LearnerOptions(mode=Systolic(window=2), clocked=clocked, optimiser=SGD(lr=0.1))
        learner = DeviceLearner(clocked.network, weights(clocked), options, device(one).graphs())
        assert len([learner.step([part], rate=0.1) for part in learner.windows(batch)]) == 2
        made.append(learner.state.masters)
    for key, w in made[0].items():
        np.testing.assert_allclose(made[1][key], w, rtol=0, atol=1e-5, err_msg=key)


def test_what_is_kept_is_as_long_as_the_window() -> None:
    kept = {key: kept.shape for key, kept in stream_states(MACHINE).items() if kept.name.startswith(("0.", "3."))}
    assert kept == {
        "0.0.0.0/k": (2, 1, 2),
        "0.0.0.0/v": (2, 1, 2),
        "0.0.0.0/place": (1,),
        "3.0.0.0/1/k": (1, 1, 4),
        "3.0.0.0/1/v": (1, 1, 4),
        "3.0.0.0/1/place": (1,),
    }
    message = r"multi_head_attention at 0\.0\.0\.0 stores k of every row of its sequence"
    with pytest.raises(UnsupportedError, match=message) as found:
        Clocked(network=chain([MultiHeadAttention(embed_dim=4, num_heads=2)], (4,)))
    assert "window=" in (found.value.hint or "")
