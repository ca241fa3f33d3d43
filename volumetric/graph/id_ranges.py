"""Bounds of the ids in integer inputs: devices check them before a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations import OPS
from volumetric.graph.operations.cross_attention import cross_attend_inputs
from volumetric.graph.ops import Graph, Node


class IdRange(NamedTuple):
    """Ids must be in 0 … ``below`` - 1, or equal ``also``; ``where``: their indices in the flat tensor, None: all."""

    below: int
    also: int
    where: Array | None

    def wrong(self, value: Array) -> Array:
        """Return the ids in `value`, an array of the tensor's shape, that are out of bounds."""
        ids = value if self.where is None else value.reshape(-1)[self.where]
        return ids[((ids < 0) | (ids >= self.below)) & (ids != self.also)]


def id_bounds(
    graph: Graph, operations: Collection[str] = ("gather_rows", "cross_attend", "weigh_rows", "scatter_rows", "loss")
) -> dict[int, list[IdRange]]:
    """Return input or constant → bounds that `operations` set on its elements, also through views and slices."""
    shown: dict[int, tuple[int, Array | None]] = {}
    uses: dict[tuple[int, int, int], list[Array | None]] = {}
    for node in graph.nodes:
        if node.op in ("reshape", "slice") and graph.tensors[node.inputs[0]].dtype == "int32":
            source, where = shown.get(node.inputs[0], (node.inputs[0], None))
            if node.op == "slice" and where is None:
                where = np.arange(graph.tensors[source].size, dtype=np.int64)
            if where is not None:
                [where] = OPS[node.op].run([where.reshape(graph.tensors[node.inputs[0]].shape)], node.attrs)
            shown[node.outputs[0]] = source, where
        elif node.op in operations:
            for at in _PLACES.get(node.op, (1,)):
                if graph.tensors[i := node.inputs[at]].dtype == "int32":
                    source, where = shown.get(i, (i, None))
                    uses.setdefault((source, *_id_limits(graph, node, at)), []).append(where)
    bounds: dict[int, list[IdRange]] = {}
    for (source, below, also), places in uses.items():
        bounds.setdefault(source, []).append(IdRange(below, also, _union(places, graph.tensors[source].size)))
    return bounds


_PLACES = {"cross_attend": (1, 2), "weigh_rows": (2,)}
"""Operation → indices of the inputs that are ids; by default only the second input."""


def _id_limits(graph: Graph, node: Node, at: int) -> tuple[int, int]:
    """Return the exclusive upper bound of ids in an input of a node, and one more id that is allowed."""
    if node.op == "loss":
        return graph.tensors[node.inputs[0]].shape[1], node.attrs["ignore_index"]
    if node.op == "weigh_rows":
        return sum(graph.tensors[i].shape[0] for i in node.inputs[:2]), 0
    if node.op == "cross_attend" and at == 2 and node.attrs["known"]:
        return graph.tensors[cross_attend_inputs(node.inputs, node.attrs).known[0]].shape[0], 0
    table = node.outputs[0] if node.op == "scatter_rows" else node.inputs[0]
    return graph.tensors[table].shape[0], 0


def _union(places: list[Array | None], size: int) -> Array | None:
    every = np.zeros(size, bool)
    for where in places:
        every[... if where is None else where.reshape(-1)] = True
    return None if every.all() else np.flatnonzero(every)
