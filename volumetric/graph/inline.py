"""Emits the nodes of a graph into another graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from volumetric.graph.ops import Graph, Node

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

Emitted: TypeAlias = dict[tuple[str, tuple[int, ...], tuple[Any, ...]], tuple[int, ...]]
"""Operation, operands and attributes of a node → its outputs."""


def inline(
    work: GraphBuilder,
    graph: Graph,
    existing: Mapping[int, int],
    nodes: Iterable[Node] | None = None,
    emitted: Emitted | None = None,
    *,
    guarded: bool = False,
) -> dict[int, int]:
    """Emit nodes of `graph` into `work`.

    Parameters
    ----------
    existing : tensors of `graph` that already exist in `work`, its inputs included → tensors of `work`
    nodes : the nodes to emit, by default all
    emitted : outputs of nodes emitted so far: an equal node is not emitted again, new nodes are added
    guarded : nodes keep their guards; pass False if gradients read all of their outputs

    Returns
    -------
    Tensor of `graph` → tensor of `work`, for `existing`, constants, and the outputs of the nodes.
    """
    of = dict(existing)
    for i, value in graph.constants.items():
        if i not in of:
            of[i] = work.constant(value, graph.tensors[i].name)
    for node in graph.nodes if nodes is None else nodes:
        inputs = tuple(of[i] for i in node.inputs)
        predicate = (
            node.predicate._replace(tensor=of[node.predicate.tensor])
            if guarded and node.predicate is not None
            else None
        )
        key = node.op, inputs, (predicate, *sorted(node.attrs.items()))  # nodes with different guards are not shared
        outputs = None if emitted is None else emitted.get(key)
        if outputs is None:
            with work.at(node.where or work.where):
                outputs = work.emit(node.op, inputs, **node.attrs)
            if predicate is not None:
                work.nodes[-1] = replace(work.nodes[-1], predicate=predicate)
            if emitted is not None:
                emitted[key] = outputs
        of.update(zip(node.outputs, outputs, strict=True))
    work.detached.update(of[i] for i in graph.detached if i in of)
    return of
