"""Rules for graphs of fixed shape: what all of them share."""

from __future__ import annotations

from itertools import groupby
from math import prod

from volumetric.kernels.cpu.graph.operations import SHAPES
from volumetric.runtime.cpu.graph.blocks import block_by_block
from volumetric.runtime.cpu.graph.views import shared_storage
from volumetric.runtime.cpu.steps import Draft, Rules
from volumetric.runtime.graph.ops import Graph, Node

rule = Rules()
"""Operation → what appends its steps; the modules beside this one register theirs."""

READ_SPEED = 12.0
"""Bytes a core moves in a nanosecond, for estimates."""


@rule("reshape")
def view(draft: Draft, node: Node) -> None:
    """A view: both tensors share storage."""


def drafted(graph: Graph, *, alike: bool = False) -> Draft:
    """Return the steps of a graph; none for nodes that only make tensors without elements."""
    draft = Draft(graph, SHAPES, alike, shared_storage(graph))
    for guard, nodes in groupby(graph.nodes, key=lambda node: node.guard):
        first = len(draft.steps)
        for node in nodes:
            if node.op not in rule or not node.outputs or any(prod(draft.shape(i)) for i in node.outputs):
                rule.append(draft, node)
        one = guard is not None and guard.parts == 1 and draft.shape(guard.tensor)[0] == 1  # as `ROWS_WORD` says
        if guard is not None and one and len(draft.steps) > first:
            draft.guard(first, guard.tensor, guard.column)
    block_by_block(draft)
    return draft


def moved(*sizes: int) -> float:
    """Estimated nanoseconds to move tensors of `sizes` bytes."""
    return 20 + sum(sizes) / READ_SPEED
