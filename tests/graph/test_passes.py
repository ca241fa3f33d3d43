"""Rewrites of graphs keep their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.graph import Graph, GraphBuilder, differentiate, interpret
from volumetric.graph.cleanup_passes import join_pads


def read_in_parts(shape: tuple[int, ...], axis: int, cuts: list[tuple[int, int]]) -> Graph:
    """The gradient of a tensor that is read in parts, each scaled in its own way."""
    work = GraphBuilder()
    x = work.affine(work.input("x", shape), 1.0, 0.5)
    ys = [work.affine(work.part(x, axis, *cut), 2.0 + n) for n, cut in enumerate(cuts)]
    seeds = {y: work.input("g", work.shape(y)) for y in ys}
    return work.finish([differentiate(work, seeds, [x])[x]])


def ops(graph: Graph) -> list[str]:
    return sorted({node.op for node in graph.nodes} - {"unary"})


@pytest.mark.parametrize(
    ("shape", "axis", "cuts", "joined"),
    [
        ((5, 3), 0, [(0, 4), (4, 5)], True),
        ((2, 7, 3), 1, [(4, 7), (0, 1), (1, 4)], True),
        ((5, 3), 0, [(0, 3), (4, 5)], False),  # a gap
        ((5, 3), 0, [(0, 4), (3, 5)], False),  # they meet
        ((5, 3), 1, [(1, 2), (2, 3)], False),  # the first one is missing
    ],
)
def test_parts_of_a_gradient_lie_side_by_side(
    shape: tuple[int, ...], axis: int, cuts: list[tuple[int, int]], *, joined: bool
) -> None:
    graph = read_in_parts(shape, axis, cuts)
    made = join_pads(graph)
    assert ops(made) == (["concat"] if joined else ops(graph))
    draw = np.random.default_rng(2)
    given = [draw.standard_normal(made.tensors[i].shape) for i in made.inputs]
    assert [graph.tensors[i].shape for i in graph.inputs] == [made.tensors[i].shape for i in made.inputs]
    np.testing.assert_array_equal(interpret(made, given, {}, np.float64), interpret(graph, given, {}, np.float64))


def test_parts_that_somebody_else_reads_stay() -> None:
    work = GraphBuilder()
    a = work.pad(work.input("a", (2, 3)), (0, 0), (1, 0))
    b = work.pad(work.input("b", (1, 3)), (2, 0), (0, 0))
    graph = work.finish([work.add(a, b), a])
    assert join_pads(graph) is graph
    other = work.pad(work.input("c", (3, 2)), (0, 1), (0, 0))
    graph = work.finish([work.add(b, other)])
    assert join_pads(graph) is graph
    kept = work.pad(work.stored_tensor("kept", (2, 3)), (0, 0), (1, 0))
    sum_ = work.add(kept, work.pad(work.input("d", (1, 3)), (2, 0), (0, 0)))
    graph = work.finish([sum_])
    assert join_pads(graph) is graph  # it might be written to in between
