"""Sums of rows by ids that a graph knows read lists on a GPU, with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import device
from volumetric.base.errors import ShapeError
from volumetric.devices.gpu.graph.row_sums import LONGEST, list_sums, sum_levels
from volumetric.graph import Graph, GraphBuilder, interpret

IDS = {
    "of each row one": np.array([3, 0, 2, 1]),
    "of some none": np.array([5, 1, 5, 5, 1]),
    "as many as one sums": np.repeat([2, 0], LONGEST),
    "one more": np.repeat([2, 0], LONGEST + 1),
    "more than sums of sums": np.concatenate([np.zeros(LONGEST**2 + 1, np.int64), [6, 0, 6]]),
    "mixed": np.random.default_rng(0).integers(0, 7, 3000) // 2,
}


def summed(ids: np.ndarray, *, known: bool = True) -> Graph:
    work = GraphBuilder()
    of = work.constant(ids.astype(np.int32), "ids") if known else work.input("ids", ids.shape, "int32")
    return work.finish([work.affine(work.scatter_rows(work.input("g", (len(ids), 5)), of, 7), 2.0)])


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_sums_by_lists_are_those_by_ids(ids: np.ndarray) -> None:
    graph = summed(ids)
    ops = [node.op for node in list_sums(graph).nodes]
    assert "scatter_rows" not in ops
    assert ops.count("sum_listed") == len(sum_levels(ids, 7))
    assert all(np.diff(starts).max() <= LONGEST for _, starts in sum_levels(ids, 7))
    g = np.random.default_rng(1).standard_normal((len(ids), 5)).astype(np.float32)
    graphs = device("gpu").graphs()
    [found] = graphs.compile(graph, graphs.store()).run([g])
    [want] = interpret(graph, [g], {}, np.float64)
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-6 * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_sums_by_ids_that_come_with_a_call_are_those_of_the_reference(ids: np.ndarray) -> None:
    graphs = device("gpu").graphs()
    draw = np.random.default_rng(2)
    of = ids.astype(np.int32)
    program = graphs.compile(summed(ids, known=False), graphs.store())
    for n in range(2):  # whole numbers, whose sums are exact in any order; the second ids are in another one
        g = draw.integers(-9, 10, (len(ids), 5)).astype(np.float32)
        of = draw.permutation(of) if n else of
        [found] = program.run([of, g])
        np.testing.assert_array_equal(found, interpret(program.graph, [of, g], {}, np.float64)[0])


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 255, 257, 4095, 4097, 9000])
def test_sums_by_ids_have_the_same_bits_in_each_run(count: int) -> None:
    draw = np.random.default_rng(count)
    ids = np.minimum(draw.zipf(1.3, count), 40).astype(np.int32) - 1
    g = draw.standard_normal((count, 131)).astype(np.float32)
    work = GraphBuilder()
    x, of = work.input("g", g.shape), work.input("ids", ids.shape, "int32")
    graph = work.finish([work.scatter_rows(x, of, 40)])
    graphs = device("gpu").graphs()
    program = graphs.compile(graph, graphs.store())
    first, *others = (program.run([g, ids])[0] for _ in range(3))
    assert all(np.array_equal(first, other) for other in others)
    want = interpret(graph, [g, ids], {}, np.float64)[0]
    size = np.zeros((40, 131))
    np.add.at(size, ids, np.abs(g))
    assert (np.abs(first - want) <= 1e-6 * size).all()


def test_ids_that_are_given_or_out_of_range_or_none_stay() -> None:
    for ids, known in ((IDS["mixed"], False), (np.array([1, 7]), True), (np.array([-1]), True), (np.zeros(0), True)):
        graph = summed(ids, known=known)
        assert list_sums(graph) is graph
    graphs = device("gpu").graphs()
    with pytest.raises(ShapeError, match="id 7 is outside of"):
        graphs.compile(summed(np.array([1, 7])), graphs.store())


def test_one_list_serves_all_sums_by_the_same_ids() -> None:
    work = GraphBuilder()
    ids = work.constant(np.array([1, 0, 1], np.int32), "ids")
    graph = list_sums(work.finish([work.scatter_rows(work.input(name, (3, 2)), ids, 4) for name in "ab"]))
    assert [node.op for node in graph.nodes] == ["sum_listed"] * 2
    assert len(graph.constants) == 2
