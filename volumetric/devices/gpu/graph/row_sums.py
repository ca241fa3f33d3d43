"""Sums of rows by ids known when a graph is recorded: lists of the rows of each sum replace the ids.

Otherwise each run sorts the ids first. ``sum_listed`` g [n,D], list int32 [n], starts int32 [rows + 1] → [rows,D]: row
r is the sum of the rows of g that ``list`` names from ``starts[r]`` on, ``longest`` at most. Only this rewrite creates
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.graph.pruning import prune
from volumetric.graph.rewriter import GraphRewriter

LONGEST = 64
"""Rows that one invocation sums; for more, partial sums are summed in turn."""


def list_sums(graph: Graph) -> Graph:
    """Let sums of rows by constant ids read lists; sums by other ids, or by ids out of range, stay as they are."""
    constants = dict(graph.constants)
    work, known = GraphRewriter(graph), dict[tuple[int, int], list[tuple[int, int]]]()

    def constant(value: Array) -> int:
        constants[len(work.tensors)] = value.astype(np.int32)
        work.tensors.append(Tensor(name="list", shape=value.shape, dtype="int32", role="constant"))
        return len(work.tensors) - 1

    for node in graph.nodes:
        if not _is_known(node, graph.constants):
            work.nodes.append(node)
            continue
        work.where = node.where
        source, rows = node.inputs[1], node.attrs["rows"]
        if (source, rows) not in known:
            lists = sum_levels(np.asarray(graph.constants[source]), rows)
            known[source, rows] = [(constant(order), constant(starts)) for order, starts in lists]
        x, (*before, (order, starts)) = node.inputs[0], known[source, rows]
        for part, ends in before:
            shape = work.shape(ends)[0] - 1, work.shape(x)[1]
            x = work.emit("sum_listed", (x, part, ends), shape, longest=LONGEST)
        work.emit_to(node.outputs, "sum_listed", (x, order, starts), longest=LONGEST)
    if not known:
        return graph
    return prune(replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes), constants=constants))


def sum_levels(ids: Array, rows: int) -> list[tuple[Array, Array]]:
    """Return the list and the starts of one or more successive ``sum_listed`` that sum rows by `ids`."""
    order, counts = np.argsort(ids, kind="stable"), np.bincount(ids, minlength=rows)
    lists: list[tuple[Array, Array]] = []
    while counts.max() > LONGEST:
        parts = -(-counts // LONGEST)
        # Sums of LONGEST rows each, and of the rest after these.
        first = np.repeat(np.cumsum(counts) - counts, parts)
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        lists.append((order, np.append(first + LONGEST * number, len(order))))
        order, counts = np.arange(parts.sum()), parts
    return [*lists, (order, np.concatenate(([0], np.cumsum(counts))))]


def _is_known(node: Node, constants: Mapping[int, Array]) -> bool:
    """Whether a node sums at least one row, by ids that are all in range."""
    if node.op != "scatter_rows" or node.inputs[1] not in constants:
        return False
    ids = np.asarray(constants[node.inputs[1]])
    return bool(ids.size) and ids.min() >= 0 and ids.max() < node.attrs["rows"]
