"""Which general nodes run on the rows of a call, and which are part of the core beside them."""

from __future__ import annotations

from volumetric.base._typing import ROWS
from volumetric.graph import GraphBuilder
from volumetric.run.graph.network_graph import NATIVE
from volumetric.run.graph.row_nodes import nodes_by_kind


def runs(work: GraphBuilder, *outputs: int) -> list[tuple[str, bool]]:
    return [(node.op, kind.runs) for kind, node in nodes_by_kind(work.finish(outputs), NATIVE)]


def entmax(work: GraphBuilder, x: int) -> int:
    return work.entmax(x, 1.5)


def test_general_nodes_on_features_run_on_rows() -> None:
    work = GraphBuilder()
    x = work.input("x", (ROWS, 6))
    whole = work.concat((work.part(x, 1, 0, 2), work.unary(work.part(x, 1, 2, 6), "exp")), 1)
    assert all(run for _, run in runs(work, work.softmax(work.binary("sub", whole, x))))


def test_nodes_that_mix_rows_or_have_more_axes_do_not() -> None:
    work = GraphBuilder()
    x = work.input("x", (ROWS, 2, 3))
    assert runs(work, work.unary(x, "exp")) == [("unary", False)]
    work = GraphBuilder()
    x = work.input("x", (ROWS, 6))
    assert runs(work, work.binary("mul", x, work.stored_tensor("gain", (6,)))) == [("binary", False)]


def test_what_stands_between_two_nodes_of_a_core_is_part_of_it() -> None:
    work = GraphBuilder()
    x = work.input("x", (ROWS, 6))
    y = entmax(work, work.binary("add", entmax(work, x), x))
    assert runs(work, y) == [("entmax", False), ("binary", False), ("entmax", False)]


def test_what_a_core_makes_or_reads_alone_is_part_of_it() -> None:
    work = GraphBuilder()
    x = work.input("x", (ROWS, 6))
    y = work.unary(work.unary(entmax(work, work.affine(x, 2.0)), "exp"), "tanh")
    found = runs(work, work.binary("add", y, x))
    assert found == [("unary", False), ("entmax", False), ("unary", False), ("unary", False), ("binary", True)]


def test_an_output_runs_on_rows() -> None:
    work = GraphBuilder()
    x = work.input("x", (ROWS, 6))
    assert runs(work, work.unary(entmax(work, x), "exp")) == [("entmax", False), ("unary", True)]
