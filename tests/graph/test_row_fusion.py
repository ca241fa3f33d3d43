"""What devices run as one on rows is found in general operations, and only there where it is the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from volumetric.base._typing import ROWS
from volumetric.graph import Graph, GraphBuilder, interpret
from volumetric.graph.binding import bind
from volumetric.graph.row_fusion import fuse_on_rows
from volumetric.graph.unroll_scans import write_out

EVERY = frozenset({"gated", "grouped_norm", "lookup"})
Emit = Callable[[GraphBuilder, int, int], int]


def built(emit: Emit) -> Graph:
    work = GraphBuilder()
    return work.finish([emit(work, work.input("a", (ROWS, 6)), work.input("b", (ROWS, 6)))])


def gate(work: GraphBuilder, a: int, b: int) -> int:
    return work.binary("mul", work.unary(a, "silu"), b)


def gate_last(work: GraphBuilder, a: int, b: int) -> int:
    return work.binary("mul", b, work.unary(a, "silu"))


def groups(work: GraphBuilder, a: int, b: int) -> int:
    normal = work.norm(work.reshape(a, (2 * ROWS, 3)), kind="rms", eps=1e-3)
    return work.binary("mul", work.reshape(normal, (ROWS, 6)), work.stored_tensor("gain", (6,)))


def positions(work: GraphBuilder, a: int, b: int) -> int:
    table = work.stored_tensor("table", (9, 6))
    return work.binary("add", a, work.gather_rows(work.part(table, 0, 2, 9), work.positions()))


FUSED = {"gate": (gate, "gated"), "gate-last": (gate_last, "gated"), "groups": (groups, "grouped_norm"),
         "positions": (positions, "lookup")}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_one_node_gives_what_several_gave(name: str) -> None:
    emit, op = FUSED[name]
    apart, fused = built(emit), fuse_on_rows(built(emit), EVERY)
    assert [node.op for node in fused.nodes] == [op]
    assert fuse_on_rows(apart, EVERY - {op}).nodes == apart.nodes
    rng = np.random.default_rng(0)
    buffers = {"gain": rng.standard_normal(6), "table": rng.standard_normal((9, 6))}
    graphs = [apart, fused, *([] if op == "lookup" else [write_out(bind(fused, 3))])]
    found = []
    for graph in graphs:
        names: dict[str, np.ndarray] = {"positions": np.arange(4, 7, dtype=np.int32)}
        names |= {"a": np.sin(np.arange(18.0)).reshape(3, 6), "b": np.cos(np.arange(18.0)).reshape(3, 6)}
        given = [names[graph.tensors[i].name] for i in graph.inputs]
        found.append(interpret(graph, given, dict(buffers), np.float64)[0])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-12)


def read_twice(work: GraphBuilder, a: int, b: int) -> int:
    gate = work.unary(a, "silu")
    return work.binary("add", work.binary("mul", gate, b), gate)


def no_activation(work: GraphBuilder, a: int, b: int) -> int:
    return work.binary("mul", work.unary(a, "exp"), b)


def other_gain(work: GraphBuilder, a: int, b: int) -> int:
    normal = work.norm(work.reshape(a, (2 * ROWS, 3)), work.stored_tensor("gain", (3,)), kind="rms", eps=1e-3)
    return work.binary("mul", work.reshape(normal, (ROWS, 6)), b)


def columns_of_table(work: GraphBuilder, a: int, b: int) -> int:
    part = work.part(work.stored_tensor("table", (9, 8)), 1, 1, 7)
    return work.binary("add", a, work.gather_rows(part, work.positions()))


@pytest.mark.parametrize("emit", [read_twice, no_activation, other_gain, columns_of_table])
def test_what_is_not_the_same_stays(emit: Emit) -> None:
    graph = built(emit)
    assert fuse_on_rows(graph, EVERY).nodes == graph.nodes
