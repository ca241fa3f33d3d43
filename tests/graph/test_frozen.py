"""What follows from weights alone is computed once."""

from __future__ import annotations

import numpy as np

from tests.devices import device
from volumetric.builders.sequential import chain
from volumetric.graph import Graph, GraphBuilder, interpret
from volumetric.graph.constant_folding import PREFIX, constant_values, split_constants
from volumetric.graph.numpy_graphs import NumpyGraphs, NumpyProgram, NumpyStore
from volumetric.layers import SLSTM, XLAttention
from volumetric.network import initialise
from volumetric.run.graph.network_graph import graph_of, resumed_states
from volumetric.run.lower import lower

NETWORK = chain([XLAttention(embed_dim=6, num_heads=2, memory=3), SLSTM(embed_dim=6, num_heads=2)], (6,))
PARAMS = initialise(NETWORK, seed=2)


def a_window(rows: int) -> Graph:
    return graph_of(NETWORK, rows, sequences=2, resumes=True)


def buffers() -> dict[str, np.ndarray]:
    states = {k: np.zeros((2, *s.shape), np.float32) for k, s in resumed_states(lower(NETWORK)).items()}
    return states | {key: value.values().astype(np.float32) for key, value in PARAMS.items()}


def test_both_parts_make_what_the_whole_does() -> None:
    x = np.random.default_rng(1).standard_normal((2, 4, 6)).astype(np.float32)
    whole, held = a_window(4), buffers()
    split = split_constants(whole, list(PARAMS))
    assert split.first is not None
    assert not split.first.inputs
    made = dict(zip(split.keys, interpret(split.first, [], held), strict=True))
    other = buffers() | made
    np.testing.assert_array_equal(interpret(split.rest, [x], other)[0], interpret(whole, [x], held)[0])
    for key, value in held.items():
        np.testing.assert_array_equal(other[key], value)
    assert len(split.rest.nodes) < len(whole.nodes)
    r = [key for key in split.rest.tensors_by_key if key.startswith(PREFIX)]
    assert sorted(r) == sorted(split.keys)


def test_windows_of_any_length_share_what_is_kept() -> None:
    one, other = (split_constants(a_window(rows), list(PARAMS)) for rows in (1, 2))
    wide = 4 * 6 * 3  # codes of distances through r, and joined weights of gates
    for split in (one, other):
        assert split.first is not None
        assert sum(split.first.tensors[i].size for i in split.first.outputs) >= wide
    assert set(one.keys) & set(other.keys)


def test_what_changes_or_is_drawn_stays() -> None:
    work = GraphBuilder()
    weight, moving = work.stored_tensor("weight", (3,)), work.stored_tensor("moving", (3,))
    x = work.input("x", (3,))
    fixed = work.unary(weight, "exp")
    of_both = work.binary("add", fixed, work.unary(moving, "exp"))
    work.emit("assign", (work.binary("add", moving, x),), key="moving")
    graph = work.finish([of_both])
    split = split_constants(graph, ["weight", "moving"])
    assert split.first is not None
    assert [node.op for node in split.first.nodes] == ["unary"]
    assert "moving" not in split.first.tensors_by_key
    assert split_constants(graph, []).first is None


def test_large_results_of_little_stay() -> None:
    work = GraphBuilder()
    wide = work.broadcast(work.stored_tensor("weight", (1, 3)), (5000, 3))
    x = work.input("x", (5000, 3))
    graph = work.finish([work.binary("add", x, wide)])
    assert split_constants(graph, ["weight"]).first is None


def test_streams_keep_it_once() -> None:
    stream = device("cpu").stream(NETWORK, PARAMS, batch=2)
    x = np.random.default_rng(4).standard_normal((2, 3, 6)).astype(np.float32)
    want = device("reference").stream(NETWORK, PARAMS, batch=2)
    for rows in (x, x[:, :1], x[:, :2], x):
        np.testing.assert_allclose(stream.run(rows), want.run(rows), rtol=0, atol=2e-6)
    fork = stream.fork()
    np.testing.assert_array_equal(fork.run(x), stream.run(x))


def test_what_is_only_moved_is_moved_without_a_program_and_the_rest_computed() -> None:
    work = GraphBuilder()
    a, b = work.stored_tensor("a", (2, 3)), work.stored_tensor("b", (2, 3))
    joined = work.permute(work.reshape(work.concat((a, b), 0), (2, 2, 3)), (0, 2, 1))
    x = work.input("x", (2, 3, 2))
    outputs = [work.binary("mul", x, joined), work.binary("mul", x, work.unary(joined, "exp"))]
    split = split_constants(work.finish(outputs), ["a", "b"])
    compiled: list[list[str]] = []

    class Counting(NumpyGraphs):
        def compile(self, graph: Graph, store: NumpyStore) -> NumpyProgram:
            compiled.append([node.op for node in graph.nodes])
            return super().compile(graph, store)

    store = NumpyStore()
    for key, value in (("a", 1.0), ("b", 2.0)):
        store.write(key, np.arange(6, dtype=np.float32).reshape(2, 3) + np.float32(value))
    found = dict(zip(split.keys, constant_values(split, Counting(), store), strict=True))
    assert split.first is not None
    whole = dict(zip(split.keys, interpret(split.first, [], store.buffers), strict=True))
    assert found.keys() == whole.keys()
    assert all(np.array_equal(found[key], whole[key]) for key in whole)
    assert len(found) == 2
    assert [ops[-1] for ops in compiled] == ["unary"]


def test_of_nothing_nothing_is_computed() -> None:
    work = GraphBuilder()
    split = split_constants(work.finish([work.unary(work.input("x", (2,)), "exp")]), [])
    assert (split.first, split.keys) == (None, ())
    assert constant_values(split, NumpyGraphs(), NumpyStore()) == []
