"""Clocked networks: fast forms compute what the definition says, tick by tick, and streams go on as they should."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine, rows, weights
from tests.devices import DEVICES, device
from tests.oracles.clocked import NumpyClocked
from volumetric import Clocked, Coord, Every, Grid, Link, Network, Port
from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, GenerationError, ShapeError, SpecError, UnsupportedError
from volumetric.builders.sequential import chain
from volumetric.clocked.buckets import buckets_of
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.clocked.states import stream_states
from volumetric.layers import GRU, LSTM, RNN, Dense, Embedding, MultiHeadAttention, PositionEmbedding
from volumetric.network import initialise
from volumetric.run.lower import lower
from volumetric.run.streams import RowStream
from volumetric.run.streams.row_stream import TOGETHER

CLOSE = {"rtol": 0, "atol": 1e-5}


def machines(seeds: range, made: Callable[[int], Clocked] = machine) -> list[int]:
    """Those seeds of which a network comes; with others nothing says which shape goes round a loop."""
    found = []
    for seed in seeds:
        try:
            made(seed)
        except ShapeError:
            continue
        found.append(seed)
    return found


def stream(name: str, clocked: Clocked, batch: int = 2) -> ClockedStream:
    return device(name).stream(clocked, weights(clocked), batch=batch)


def by_name(y: Any) -> dict[str, Array]:
    return y if isinstance(y, dict) else {"output": y}


def check(name: str, seed: int) -> None:
    """Six ticks with resets: outputs and all that is kept."""
    clocked = machine(seed)
    x = rows(clocked, 2, 6)
    resets = (np.random.default_rng(seed).random((2, 6)) < 0.2).astype(np.int64)
    oracle, fast = NumpyClocked(clocked, weights(clocked), 2), stream(name, clocked)
    want = [oracle.tick({n: v[:, t] for n, v in x.items()}, resets[:, t]) for t in range(6)]
    for output, y in by_name(fast.run(x, resets=resets)).items():
        np.testing.assert_allclose(y, np.stack([of[output] for of in want], 1), **CLOSE, err_msg=output)
    for key, value in fast.state().items():
        np.testing.assert_allclose(value, oracle.state[key], **CLOSE, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_buckets_agree_with_the_definition(first: int) -> None:
    for seed in machines(range(first, first + 25)):
        check("reference", seed)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "seeds"), [("cpu", range(12)), ("gpu", range(4))])
def test_devices_agree_with_the_definition(name: str, seeds: range) -> None:
    for seed in machines(seeds):
        check(name, seed)


def passing(seed: int) -> Clocked:
    """A random machine whose last layer passes on what it reads, and so does a layer that is tapped."""
    clocked = machine(seed)
    network = clocked.network
    last, tapped = [*network.layers][-1], [*network.layers][seed % len(network.layers)]
    outputs = {**network.outputs, "passed": tapped}
    network = dataclasses.replace(network, disabled=network.disabled | {last, tapped}, outputs=outputs)
    return dataclasses.replace(clocked, network=network)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "seeds"), [("reference", range(60)), ("cpu", range(53, 59)), ("gpu", range(53, 55))])
def test_rows_one_by_one_are_those_of_one_call(name: str, seeds: range) -> None:
    for seed in machines(seeds, passing):
        clocked = passing(seed)
        x = rows(clocked, 2, 5)
        whole, apart = stream(name, clocked).run(x), stream(name, clocked)
        each = [by_name(apart.run({n: v[:, t : t + 1] for n, v in x.items()})) for t in range(5)]
        for output, y in by_name(whole).items():
            found = np.concatenate([of[output] for of in each], 1)
            np.testing.assert_allclose(found, y, **CLOSE, err_msg=f"{seed} {output}")


CHAIN = chain(
    [
        Dense(in_features=4, out_features=6, activation="tanh"),
        LSTM(input_size=6, hidden_size=5),
        GRU(input_size=5, hidden_size=5),
        Dense(in_features=5, out_features=3),
    ],
    (4,),
)
IDS = chain([Embedding(num_embeddings=3, embedding_dim=2)], (), "int32")
IDS_PARAMS = initialise(IDS)
RNN3 = GRU(input_size=3, hidden_size=3)
X = np.random.default_rng(3).standard_normal((2, 5, 4)).astype(np.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_wavefront_is_the_sequence(name: str) -> None:
    params = initialise(CHAIN, seed=1)
    executable = device(name).compile(lower(CHAIN), params)
    whole = np.stack([executable.forward(executable.new_state(), x, last_only=False) for x in X])
    ticking = device(name).stream(Clocked(network=CHAIN, start="wavefront"), params, batch=2)
    y = np.concatenate([ticking.run(X), ticking.run(ticks=3)], 1)
    np.testing.assert_allclose(y[:, 3:], whole, **CLOSE)


@pytest.mark.parametrize("name", DEVICES)
def test_a_held_row_comes_through_as_in_a_forward_pass(name: str) -> None:
    dense = [Dense(in_features=4, out_features=4, activation="tanh") for _ in range(5)]
    network = chain(dense, (4,))
    params = initialise(network, seed=1)
    executable = device(name).compile(lower(network), params)
    whole = executable.forward(executable.new_state(), X[:, 0], last_only=False)
    y = device(name).stream(Clocked(network=network), params, batch=2).run(X[:, :1], ticks=5)
    if name == "reference":
        np.testing.assert_array_equal(y[:, -1], whole)
    np.testing.assert_allclose(y[:, -1], whole, **CLOSE)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("kind", ["rows", "ticks"])
def test_streams_split_save_fork_and_reset(name: str, kind: str) -> None:
    params = initialise(CHAIN, seed=1)
    what = CHAIN if kind == "rows" else Clocked(network=CHAIN, clocks={Coord(1): Every(period=2, phase=1)})

    def fresh() -> Any:
        return device(name).stream(what, params, batch=2)

    whole = fresh().run(X)
    cut = fresh()
    first = cut.run(X[:, :4])
    saved, fork = cut.save(), cut.fork()
    rest = cut.run(X[:, 4:])
    np.testing.assert_allclose(np.concatenate([first, rest], 1), whole, **CLOSE)
    np.testing.assert_array_equal(fork.run(X[:, 4:]), rest)
    again = fresh()
    again.restore(saved)
    np.testing.assert_array_equal(again.run(X[:, 4:]), rest)
    # L2: rows from a reset on are those of a fresh stream, also out of NaN, and the other stream knows nothing of it
    resets = np.zeros((2, 5), np.int64)
    resets[1, 4] = 1
    odd = X.copy()
    odd[1, 2] = np.nan
    mixed = fresh().run(odd, resets=resets)
    np.testing.assert_allclose(mixed[0], whole[0], **CLOSE)
    np.testing.assert_allclose(mixed[1, 4:], fresh().run(X[:, 4:])[1], **CLOSE)
    cut.reset([1])
    np.testing.assert_allclose(cut.run(X)[1], whole[1], **CLOSE)
    assert fresh().run(X[:, :0]).shape == (2, 0, 3)


def test_saved_streams_of_other_machines_are_refused() -> None:
    params = initialise(CHAIN)
    one, other = (device("cpu").stream(Clocked(network=CHAIN), params, batch=n) for n in (2, 3))
    one.run(X)
    saved = one.save()
    with pytest.raises(CheckpointError, match="another network"):
        other.restore(saved)
    for data in (b"", saved[:50], saved[:-3] + b"abc", b"x" * 100):
        with pytest.raises(CheckpointError):
            one.restore(data)
    row = device("cpu").stream(CHAIN, params, batch=2)
    row.run(X)
    with pytest.raises(CheckpointError, match="batch of 2"):
        device("cpu").stream(CHAIN, params, batch=1).restore(row.save())
    for data in (b"", row.save()[:50], saved):
        with pytest.raises(CheckpointError):
            row.restore(data)


def test_rows_may_have_several_ticks_and_ids_may_come_in() -> None:
    network = Network(
        grid=Grid(2),
        layers={Coord(0): Embedding(num_embeddings=7, embedding_dim=3), Coord(1): RNN3},
        links=(Link(kind="activation", source=Coord(1), target=Coord(1), combine="add", delay=2),),
        inputs={"push": Port(coord=Coord(1), shape=(3,), combine="add")},
        outputs={"first": Coord(0)},
    )
    clocked = Clocked(network=network, hold={"push": "zero"})
    ids, push = np.array([[1, 2, 5]]), X[:1, :3, :3]
    oracle = NumpyClocked(clocked, weights(clocked), 1)
    given = [{"input": ids[:, t], "push": push[:, t]} for t in range(3)]
    want = [oracle.tick(given[t // 3] if t % 3 == 0 else {})["output"] for t in range(9)]
    for name in DEVICES:
        y = stream(name, clocked, 1).run({"input": ids, "push": push}, per_row=3)
        assert isinstance(y, dict)
        np.testing.assert_allclose(y["output"], np.stack(want, 1), **CLOSE)
        assert y["first"].shape == (1, 9, 3)


def test_equal_layers_are_one_bucket() -> None:
    grid = Grid(3, 3, 3)
    layers = {grid.coord(i): Dense(in_features=2, out_features=2) for i in range(27)}
    network = Network(grid=grid, layers=layers, input_shape=(2,), input_dtype="float32")
    assert [bucket.way for bucket in buckets_of(Clocked(network=network))] == ["grouped"]


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"no layer at 9\.0\.0\.0"):
        Clocked(network=CHAIN, clocks={Coord(9): Every(period=2)})
    with pytest.raises(SpecError, match="no input 'eye'"):
        Clocked(network=CHAIN, hold={"eye": "zero"})
    for fields in ({"period": 0}, {"period": 2, "phase": 2}):
        with pytest.raises(SpecError, match="every"):
            Every(**fields)
    attention = MultiHeadAttention(embed_dim=4, num_heads=2)
    for layer in (
        attention,
        PositionEmbedding(num_embeddings=4, embedding_dim=4),
        GRU(input_size=4, hidden_size=4, reverse=True),
    ):
        with pytest.raises(UnsupportedError, match=r"at 0\.0\.0\.0"):
            Clocked(network=chain([layer], (4,)))
    params = initialise(CHAIN)
    ticking = device("cpu").stream(Clocked(network=CHAIN), params, batch=2)
    with pytest.raises(ShapeError, match=r"expected \[2, T, 4\], got \[1, 3, 4\]"):
        ticking.run(X[:1, :3])
    with pytest.raises(SpecError, match="no input 'eye'"):
        ticking.run({"eye": X})
    for resets in (np.zeros((2, 3)), np.full((2, 5), 2)):
        with pytest.raises(ShapeError, match="resets"):
            ticking.run(X, resets=resets)
    with pytest.raises(SpecError, match="per_row"):
        ticking.run(X, per_row=0)
    with pytest.raises(SpecError, match="ticks"):
        ticking.run(X, ticks=4)
    with pytest.raises(SpecError, match="batch"):
        device("cpu").stream(CHAIN, params, batch=0)
    ids = device("cpu").stream(IDS, IDS_PARAMS, batch=1)
    assert isinstance(ids, RowStream)
    with pytest.raises(GenerationError, match="id 3"):
        ids.run(np.array([[0, 3]]))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("kind", ["rows", "ticks"])
def test_rows_are_taken_as_they_come(name: str, kind: str) -> None:
    what = CHAIN if kind == "rows" else Clocked(network=CHAIN)
    params = initialise(CHAIN, seed=1)
    resets = np.zeros((2, 5), np.int64)
    resets[1, 3] = 1
    whole: Any = device(name).stream(what, params, batch=2).run(X, resets=resets)
    taken: list[int] = []

    def rows() -> Any:
        for t in range(5):
            taken.append(t)
            yield X[:, t] if t % 2 else {"input": X[:, t]}

    found: list[Any] = []
    stream: Any = device(name).stream(what, params, batch=2)
    for y in stream.iterate(rows(), resets=resets.T, chunk=2):
        found.append(y)
        assert len(taken) == min(2 * len(found), 5)  # no row is read ahead
    assert [y.shape[1] for y in found] == [2, 2, 1]
    np.testing.assert_allclose(np.concatenate(found, 1), whole, **CLOSE)


def test_rows_without_inputs_are_ticks_on_what_is_held() -> None:
    clocked, params = Clocked(network=CHAIN), initialise(CHAIN, seed=1)
    one, other = (device("reference").stream(clocked, params, batch=2) for _ in range(2))
    marks = [[0, 0], [0, 0], [0, 1], [0, 0]]
    rows = [X[:, 0], {}, {}, X[:, 1]]
    found: Any = list(one.iterate(rows, resets=map(np.array, marks), per_row=2))
    assert [y.shape[1] for y in found] == [2, 4, 2]
    wanted: Any = other.run(X[:, :1], per_row=2)
    np.testing.assert_array_equal(found[0], wanted)
    resets = np.array([[0, 0, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(found[1], other.run(ticks=4, resets=resets))
    np.testing.assert_array_equal(found[2], other.run(X[:, 1:2], per_row=2))


def test_rows_that_do_not_fit_are_refused() -> None:
    clocked, params = Clocked(network=CHAIN), initialise(CHAIN)
    for machine_ in (clocked, CHAIN):
        stream: Any = device("reference").stream(machine_, params, batch=2)
        with pytest.raises(ShapeError, match=r"row 1 has shape \[2, 3\], the row before \[2, 4\]"):
            list(stream.iterate([X[:, 0], X[:, 1, :3]]))
        with pytest.raises(ShapeError, match="row 0 needs an axis"):
            list(stream.iterate([np.float32(1)]))
        with pytest.raises(ShapeError, match="fewer resets"):
            list(stream.iterate([X[:, 0], X[:, 1]], resets=[np.zeros(2)]))
        with pytest.raises(SpecError, match="chunk"):
            list(stream.iterate([X[:, 0]], chunk=0))
    with pytest.raises(ShapeError, match="'input' has no rows"):
        stream.run({})


@pytest.mark.parametrize("name", DEVICES)
def test_stores_share_what_both_read(name: str) -> None:
    store: Any = device(name).graphs().store()
    store.write("a", np.arange(5, dtype=np.float32))
    store.write("b", np.ones(3, np.float32))
    context = getattr(store, "_context", None)
    before = context.allocated if context else 0
    other = store.share(["a"])
    assert set(other.keys()) == {"a"}
    assert not context or context.allocated == before
    store.drop("a")
    np.testing.assert_array_equal(other.get("a"), np.arange(5))
    assert not context or context.allocated == before
    other.drop("a")
    assert not context or context.allocated < before
    with pytest.raises(KeyError):
        store.share(["c"])


@pytest.mark.parametrize("name", DEVICES)
def test_a_fork_reads_the_weights_of_its_origin(name: str) -> None:
    origin = stream(name, Clocked(network=CHAIN))
    fork = origin.fork()
    for key in origin._weights:
        if name == "gpu":
            assert fork._store.buffer(key) is origin._store.buffer(key)
        else:
            assert np.shares_memory(fork._store.buffers[key], origin._store.buffers[key])


@pytest.mark.parametrize("name", DEVICES)
def test_streams_without_growing_states_have_no_end(name: str) -> None:
    recurrent = [] if name == "gpu" else [RNN(input_size=2, hidden_size=2)]  # two thousand steps take long there
    network = chain([*recurrent, Dense(in_features=2, out_features=1)], (2,))
    params = initialise(network)
    x = np.random.default_rng(0).standard_normal((1, 2100, 2)).astype(np.float32)
    long: Any = device(name).stream(network, params)
    parts = [long.run(x[:, :2000]), long.run(x[:, 2000:])]
    assert [y.shape[1] for y in parts] == [2000, 100]
    again: Any = device(name).stream(network, params)
    again.restore(long.save())
    np.testing.assert_array_equal(again.run(x[:, :3]), long.run(x[:, :3]))


def test_streams_with_growing_states_end_with_the_context() -> None:
    network = chain([MultiHeadAttention(embed_dim=2, num_heads=1)], (2,))
    growing: Any = device("reference").stream(network, initialise(network))
    with pytest.raises(GenerationError, match="do not fit its 2048"):
        growing.run(np.zeros((1, 2049, 2), np.float32))


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_many_parts_between_resets_share_calls(name: str) -> None:
    """More than one call has room for; and where one is refused, streams are as they were."""
    network = chain([MultiHeadAttention(embed_dim=2, num_heads=1), GRU(input_size=2, hidden_size=2)], (2,))
    params, rng = initialise(network, seed=1), np.random.default_rng(4)
    x, resets = rng.standard_normal((2, 50, 2)).astype(np.float32), (rng.random((2, 50)) < 0.9).astype(np.int64)
    assert resets.sum() > TOGETHER
    one: Any = device(name).stream(network, params, batch=2)
    parts = [one.run(x[:, :7]), one.run(x, resets=resets)]
    fresh: Any = device(name).stream(network, params, batch=2)
    want = [fresh.run(x[:, :7])]
    for t in range(50):
        fresh.reset(np.flatnonzero(resets[:, t]))
        want.append(fresh.run(x[:, t : t + 1]))
    np.testing.assert_allclose(np.concatenate(parts, 1), np.concatenate(want, 1), **CLOSE)
    saved, long = one.save(), np.zeros((2, 2100, 2), np.float32)
    with pytest.raises(GenerationError, match="do not fit its 2048"):
        one.run(long, resets=np.arange(2100) % 2099 == np.array([[0], [1]]))
    assert one.save() == saved


def test_numbers_are_kept_as_numbers_and_ids_as_ids() -> None:
    """What an embedding makes of ids is no id; what passes through a layer that is switched off is one still."""
    whole = chain([Embedding(num_embeddings=3, embedding_dim=2), Dense(in_features=2, out_features=2)], (), "int32")
    off = dataclasses.replace(IDS, disabled=frozenset({Coord(0)}))
    for network, dtype in ((whole, "float32"), (off, "int32")):
        made = [kept for key, kept in stream_states(Clocked(network=network)).items() if key.startswith("out/")]
        assert {kept.dtype for kept in made} == {dtype}
