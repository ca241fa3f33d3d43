"""The laws of sequences, for every recurrent layer and what holds them: split, reset, batch, resume.

And gradient: with resets, those of a window are central differences of the layer's own NumPy code in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.devices import FAST, graphs
from tests.examples.fabrics import MIXED
from tests.examples.programs import WHOLE as PROGRAM
from tests.graph.test_layers import close
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.graph import GraphBuilder, differentiate
from volumetric.layers import (
    GRU,
    LSTM,
    MLSTM,
    RNN,
    SLSTM,
    AGaLiTe,
    Axon,
    AxonLinear,
    CausalConv1d,
    Column,
    Dense,
    LayerSpec,
    Mamba,
    Mamba2,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    PostUpGated,
    PreUp,
    Rope,
    Sequential,
    ShortConv,
    StateSpec,
    XLAttention,
)
from volumetric.layers.emit_scope import Scope
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid, Link
from volumetric.run import lower
from volumetric.run.graph import graph_of
from volumetric.run.graph.network_graph import resumed_states

STREAMS, ROWS, WIDTH = 5, 6, 3
FORWARD: dict[str, LayerSpec] = {
    "rnn": RNN(input_size=WIDTH, hidden_size=5),
    "relu": RNN(input_size=WIDTH, hidden_size=17, nonlinearity="relu", bias=False),
    "lstm": LSTM(input_size=WIDTH, hidden_size=5),
    "gru": GRU(input_size=WIDTH, hidden_size=17),
    "causal_conv1d": CausalConv1d(channels=WIDTH),
    "mixing": CausalConv1d(channels=WIDTH, kernel_size=2, mixing=True),
    "slstm": SLSTM(embed_dim=WIDTH, num_heads=1, kernel_size=3),
    "mlstm": MLSTM(embed_dim=WIDTH, num_heads=1, kernel_size=2, chunk_size=4),
    "agalite": AGaLiTe(embed_dim=WIDTH, num_heads=3, eta=2, r=3),
    "axon": Axon(in_features=WIDTH, out_features=2, hidden_features=5, activation="silu"),
    "traces": Axon(in_features=WIDTH, out_features=2, mix="none", traces=True),
    "axon_linear": AxonLinear(in_features=WIDTH, out_features=2, activation="silu"),
    "xl_attention": XLAttention(embed_dim=WIDTH, num_heads=2, head_dim=2, memory=3),
    "short_conv": ShortConv(embed_dim=WIDTH),
    "mamba": Mamba(embed_dim=WIDTH, inner_features=4, state_size=2, dt_rank=2, kernel_size=2),
    "mamba2": Mamba2(
        embed_dim=WIDTH, num_heads=2, head_dim=3, state_size=3, kernel_size=3, multipliers=(1, 2, 1, 1, 0.5)
    ),
    "axon_projections": Parallel(
        combine="concat",
        branches=(
            SLSTM(embed_dim=WIDTH, num_heads=1, kernel_size=2, projection="axon"),
            MLSTM(embed_dim=WIDTH, num_heads=3, kernel_size=2, chunk_size=4, projection="axon"),
            XLAttention(embed_dim=WIDTH, num_heads=3, head_dim=1, memory=2, bias=False, projection="axon"),
        ),
    ),
    "fabric": MIXED,
    "program": PROGRAM,
    "attention": MultiHeadAttention(
        embed_dim=WIDTH,
        num_heads=4,
        num_kv_heads=2,
        head_dim=2,
        window=3,
        softcap=5.0,
        sinks=True,
        qk_norm=True,
        rope=Rope(dim=2),
        qkv_bias=True,
    ),
    "chunked": MultiHeadAttention(
        embed_dim=WIDTH, num_heads=1, chunk=3, rope=Rope(dim=2), temperature_scale=0.5, temperature_every=2
    ),
    "column": Column(
        embed_dim=WIDTH,
        experts=(
            PostUpGated(embed_dim=WIDTH, factor=0.7, core=LSTM(input_size=WIDTH, hidden_size=WIDTH)),
            PreUp(embed_dim=WIDTH, factor=0.7, core=CausalConv1d(channels=2)),
        ),
    ),
    "containers": Sequential(
        layers=(
            Dense(in_features=WIDTH, out_features=4, activation="tanh"),
            Parallel(branches=(LSTM(input_size=4, hidden_size=2), GRU(input_size=4, hidden_size=3)), combine="concat"),
            RNN(input_size=5, hidden_size=2),
            MultiHeadAttention(embed_dim=2, num_heads=1, chunk=2),
        )
    ),
}
"""What goes on from call to call."""
WHOLE: dict[str, LayerSpec] = {
    "all rows": MultiHeadAttention(embed_dim=WIDTH, num_heads=2, head_dim=2, rope=Rope(dim=2)),
    "two ways": MultiHeadAttention(embed_dim=WIDTH, num_heads=2, head_dim=2, rope=Rope(dim=2), causal=False, window=4),
}
"""What begins with its call, of a whole sequence or of several."""
BACKWARD: dict[str, LayerSpec] = {
    "both ways": Parallel(
        branches=(LSTM(input_size=WIDTH, hidden_size=4), LSTM(input_size=WIDTH, hidden_size=4, reverse=True)),
        combine="concat",
    ),
    "gru back": GRU(input_size=WIDTH, hidden_size=3, reverse=True),
}
"""What sees later rows of its call too."""
LAYERS = FORWARD | BACKWARD | WHOLE
WHERE = {name: ("reference", FAST[i % 2]) for i, name in enumerate(LAYERS)}
"""Devices of a layer: the reference, and those with kernels in turn.

What a layer does is in its graph, of operations on which devices are known to agree.
"""


def each(layers: Mapping[str, LayerSpec]) -> list[tuple[str, str]]:
    """Names of layers, each with its devices."""
    return [(name, where) for name in layers for where in WHERE[name]]


def alone(spec: LayerSpec, width: int = WIDTH) -> Network:
    """A network of one layer."""
    return Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=(width,), input_dtype="float32")


@cache
def weights(name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters by name, and rows of all streams."""
    p, x = arrays(LAYERS[name], (STREAMS, ROWS, WIDTH), seed=7)
    return {key: value.astype(np.float32) for key, value in p.items()}, x.astype(np.float32)


@cache
def program(name: str, where: str, streams: int, rows: int) -> tuple[Any, Any]:
    """A window of streams that go on, and the store with their states."""
    network = alone(LAYERS[name])
    store = graphs(where).store()
    for key, value in weights(name)[0].items():
        store.write(f"{Coord(0)}/{key}", value)
    for key, state in resumed(name).items():
        store.write(key, np.zeros((streams, *state.shape), np.float32))
    graph = graph_of(network, rows, sequences=streams, resets=True, resumes=name not in WHOLE)
    return graphs(where).compile(graph, store), store


@cache
def resumed(name: str) -> dict[str, StateSpec]:
    return {} if name in WHOLE else resumed_states(lower(alone(LAYERS[name])))


def run(
    name: str, where: str, x: np.ndarray, resets: np.ndarray, states: dict[str, np.ndarray] | None = None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Outputs of ``x [streams, rows, …]``, and the states behind it."""
    compiled, store = program(name, where, *x.shape[:2])
    for key in resumed(name):
        empty = np.zeros_like(store.get(key))
        store.write(key, empty if states is None else states[key])
    [y] = compiled.run([x, resets.astype(np.float32)])
    return y, {key: store.get(key) for key in resumed(name)}


def some_resets(seed: int) -> np.ndarray:
    """None in the first stream, in every row of the second, at the beginning of the third, at random in the others."""
    resets = (np.random.default_rng(seed).random((STREAMS, ROWS)) < 0.3).astype(np.float32)
    resets[0], resets[1], resets[2] = 0, 1, np.arange(ROWS) == 0
    return resets


def agree(got: np.ndarray, want: np.ndarray, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "where"), each(FORWARD))
def test_split(name: str, where: str) -> None:
    x, resets = weights(name)[1], some_resets(3)
    whole, left = run(name, where, x, resets)
    for cuts in ([0, 2, ROWS], range(ROWS + 1)):
        states, parts = None, []
        for first, end in pairwise(cuts):
            y, states = run(name, where, x[:, first:end], resets[:, first:end], states)
            parts.append(y)
        agree(np.concatenate(parts, 1), whole)
        assert states is not None
        for key, value in left.items():
            agree(states[key], value)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "where"), each(LAYERS))
def test_reset(name: str, where: str) -> None:
    """From a reset on a stream is a fresh one, whatever came before; the others do not notice."""
    x, resets = weights(name)[1].copy(), np.zeros((STREAMS, ROWS), np.float32)
    plain, _ = run(name, where, x, resets)
    resets[1:3, 2] = 1
    x[1, 1] = np.nan
    y, _ = run(name, where, x, resets)
    fresh, _ = run(name, where, x[:, 2:], np.zeros((STREAMS, ROWS - 2)))
    agree(y[1:3, 2:], fresh[1:3])
    np.testing.assert_array_equal(y[[0, 3, 4]], plain[[0, 3, 4]])
    assert np.isnan(y[1, 1]).any()


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "where"), each(LAYERS))
def test_batch(name: str, where: str) -> None:
    """A stream does not depend on its neighbours; the first reset of a window acts before its first row."""
    x, resets = weights(name)[1], some_resets(4)
    whole, left = run(name, where, x, resets)
    for stream in (1, 3):
        y, states = run(name, where, x[stream : stream + 1], resets[stream : stream + 1])
        agree(y[0], whole[stream])
        for key, value in states.items():
            agree(value[0], left[key][stream])
    again = x.copy()
    again[1:] = 50.0
    other, _ = run(name, where, again, resets)
    np.testing.assert_array_equal(other[0], whole[0])
    assert np.isfinite(other).all()


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "where"), each(FORWARD))
def test_resume(name: str, where: str) -> None:
    x, resets = weights(name)[1], some_resets(5)
    _, states = run(name, where, x[:, :2], resets[:, :2])
    want, _ = run(name, where, x[:, 2:], resets[:, 2:], states)
    saved = {key: value.tobytes() for key, value in states.items()}
    run(name, where, x[:, 2:], resets[:, 2:])  # something else between
    back = {key: np.frombuffer(saved[key], np.float32).reshape(states[key].shape) for key in saved}
    np.testing.assert_array_equal(run(name, where, x[:, 2:], resets[:, 2:], back)[0], want)


def window(name: str, where: str, resets: np.ndarray, gy: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients by name, ``"input"`` among them, of a window of streams."""
    p, x = weights(name)
    spec, work = LAYERS[name], GraphBuilder()
    at, given = work.input("x", (STREAMS * ROWS, WIDTH)), work.input("resets", resets.shape)
    scope = Scope(work=work, param=work.stored_tensor, path="layer", sequences=STREAMS, resets=given)
    y = scope.emit(spec, at)
    wanted = {s.name: work.stored_tensor(s.name, s.shape) for s in spec.params()} | {"input": at}
    grads = differentiate(work, {y: work.input("gy", work.shape(y))}, wanted.values())
    store = graphs(where).store()
    for key, value in p.items():
        store.write(key, value)
    compiled = graphs(where).compile(work.finish([grads[i] for i in wanted.values()]), store)
    found = compiled.run([x.reshape(-1, WIDTH), resets, gy.reshape(-1, gy.shape[-1])])
    return dict(zip(wanted, found, strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("name", LAYERS)
def test_gradient(name: str) -> None:
    p, x = ({key: v.astype(np.float64) for key, v in weights(name)[0].items()}, weights(name)[1].astype(np.float64))
    spec, resets, rng = LAYERS[name], some_resets(6), np.random.default_rng(1)

    def forward() -> tuple[np.ndarray, dict]:
        return oracle(spec).forward(p, x, memory=Memory(streams=STREAMS, resets=resets))

    y, saved = forward()
    gy = rng.standard_normal(y.shape)
    result = oracle(spec).vjp(p, saved, gy)
    assert result.inputs[0] is not None
    grads = result.params | {"input": result.inputs[0]}
    points = 6 if len(p) <= 20 else 1  # of each; those of many parameters are enough together
    for key, at in (p | {"input": x}).items():
        for i in rng.integers(0, at.size, points):

            def loss(value: float, at: np.ndarray = at, i: int = i) -> float:
                before, at.flat[i] = at.flat[i], value
                total = float((forward()[0] * gy).sum())
                at.flat[i] = before
                return total

            slope = central_difference(loss, float(at.flat[i]))
            assert grads[key].flat[i] == pytest.approx(slope, rel=1e-6, abs=1e-7), key
    for where in WHERE[name]:
        found = window(name, where, resets, gy.astype(np.float32))
        assert set(found) == set(grads)
        for key, value in grads.items():
            close(found[key], value.astype(np.float32).reshape(found[key].shape), 2e-4, f"{key} on {where}")


def central_difference(loss: Callable[[float], float], at: float, step: float = 1e-4) -> float:
    """Slope of a function by five points."""
    near, far = loss(at + step) - loss(at - step), loss(at + 2 * step) - loss(at - 2 * step)
    return (8 * near - far) / (12 * step)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_resets_cut_a_sequence_into_fresh_ones(data: st.DataObject) -> None:
    """The layers' own code, in windows of any length, against calls of their own for what lies between resets."""
    name = data.draw(st.sampled_from(["all rows", *sorted(FORWARD)]))
    bounded = name != "all rows" and data.draw(st.booleans())
    spec, (p, x) = LAYERS[name], weights(name)
    sequence = np.concatenate(x).astype(np.float64)
    resets = np.array(data.draw(st.lists(st.booleans(), min_size=len(sequence), max_size=len(sequence))), float)
    edges = [0, *(np.flatnonzero(resets[1:]) + 1), len(sequence)]
    want = np.concatenate([oracle(spec).forward(p, sequence[a:b])[0] for a, b in pairwise(edges)])
    cuts = sorted({0, len(sequence), *data.draw(st.lists(st.integers(0, len(sequence)), max_size=4))})
    values: dict[str, np.ndarray] = {}
    found = []
    for a, b in pairwise(cuts):
        memory = Memory(a, values, resets=resets[a:b], bounded=bounded)
        found.append(oracle(spec).forward(p, sequence[a:b], memory=memory)[0])
    np.testing.assert_allclose(np.concatenate(found), want, rtol=0, atol=1e-12)


def test_resets_that_do_not_fit_are_refused() -> None:
    for resets, message in (
        (np.zeros((2, 4)), r"expected shape \[3, T\], got \[2, 4\]"),
        (np.full((3, 4), 0.5), "expected 0 and 1, got 0.5"),
        (np.full((3, 4), np.nan), "expected 0 and 1, got nan"),
    ):
        with pytest.raises(ShapeError, match=message):
            Memory(streams=3, resets=resets)
    spec = FORWARD["lstm"]
    p, _ = arrays(spec, (4, WIDTH), seed=1)
    with pytest.raises(ShapeError, match=r"one for each row, shape \[4\], got \[5\]"):
        oracle(spec).forward(p, np.zeros((4, WIDTH)), memory=Memory(resets=np.zeros(5)))


def test_position_embeddings_refuse_resets() -> None:
    spec = PositionEmbedding(num_embeddings=9, embedding_dim=4)
    p, x = arrays(spec, (6, 4), seed=1)
    with pytest.raises(UnsupportedError, match="position_embedding cannot start a new sequence within a call"):
        oracle(spec).forward(p, x, memory=Memory(resets=np.zeros(6)))
    network = alone(Sequential(layers=(spec,)), 4)
    with pytest.raises(UnsupportedError, match=r"position_embedding at 0\.0\.0\.0/0 cannot start"):
        graph_of(network, 6, resets=True)
    with pytest.raises(UnsupportedError, match="cannot continue from run to run of a graph"):
        graph_of(network, 6, resumes=True)


def test_links_with_a_delay_refuse_resets() -> None:
    layers = {Coord(z): Dense(in_features=4, out_features=4) for z in range(2)}
    late = Link(kind="activation", source=Coord(0), target=Coord(1), delay=1)
    network = Network(grid=Grid(2), layers=layers, links=(late,), input_shape=(4,), input_dtype="float32")
    with pytest.raises(UnsupportedError, match=r"link .* with a delay cannot start"):
        graph_of(network, 6, resets=True)
