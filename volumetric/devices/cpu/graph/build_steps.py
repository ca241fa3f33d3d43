"""Lower a graph to steps, with predicates around steps that can be skipped.

Results skipped by a predicate may still be read, see `Predicate`: then they are filled with zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import TypeAlias

from volumetric.devices.cpu.graph.blocked_steps import merge_blocked_steps
from volumetric.devices.cpu.graph.elements import fill
from volumetric.devices.cpu.graph.extents import Storage, extents_of
from volumetric.devices.cpu.graph.gemm_sums import terms_of
from volumetric.devices.cpu.graph.graph_rules import rule
from volumetric.devices.cpu.graph.shared_storage import shared_storage
from volumetric.devices.cpu.kernels.graph.operations import SHAPES
from volumetric.devices.cpu.step_builder import OperationStep, StepBuilder
from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import Predicate

_BLOCK_BITS = 18


def build_steps(graph: Graph, *, batch_invariant: bool = False) -> StepBuilder:
    """Return the steps of a graph; nodes whose tensors have no elements have none."""
    draft = StepBuilder(graph, SHAPES, batch_invariant, shared_storage(graph))
    runs: list[_PredicatedSteps] = []
    for (predicate, summed), nodes in groupby(
        graph.nodes, key=lambda node: (_single_row_predicate(draft, node.predicate), _gemm_sum_of(node))
    ):
        unchanged: set[int] = set()
        for node in nodes:
            if node.op not in rule or not node.outputs or any(prod(draft.shape(i)) for i in node.outputs):
                rule.append(draft, node)
                unchanged.update(node.outputs if node.attrs.get("stays") else ())
        if draft.steps:
            alone = any(step.host for step in draft.steps)  # Python steps run alone in a table
            reads = [(i, predicate) for step in draft.steps for i in step.reads]
            reads = reads if summed is None else [(i, term.guard) for term in terms_of(summed) for i in term.operands]
            runs.append(_PredicatedSteps(None if alone else predicate, tuple(draft.steps), reads, unchanged))
            draft.steps.clear()
    read = _OutsideReads(draft, runs) if any(run.guard and run.guard.zeros for run in runs) else None
    for run in runs:
        first = len(draft.steps)
        draft.steps += run.steps
        if run.guard is None:
            continue
        work = sum(step.work for step in run.steps) if run.guard.zeros else 0.0
        draft.add_predicate(first, run.guard.tensor, run.guard.column, work=work)
        if read is None or not run.guard.zeros:
            continue
        first = len(draft.steps)
        for i in dict.fromkeys(i for step in run.steps for i in step.writes):
            if i not in run.unchanged and read.is_read_outside(i, run.guard):
                fill(draft, i, 0.0)
        if len(draft.steps) > first:
            draft.add_predicate(first, run.guard.tensor, run.guard.column, unless=True)
    merge_blocked_steps(draft)
    return draft


@dataclass(frozen=True, slots=True)
class _PredicatedSteps:
    """Neighbouring steps with one predicate, or none.

    Attributes
    ----------
    reads : tensors, and the predicates under which they are read
    unchanged : tensors that keep their contents if the steps are skipped
    """

    guard: Predicate | None
    steps: Sequence[OperationStep]
    reads: Sequence[tuple[int, Predicate | None]]
    unchanged: Collection[int]


def _gemm_sum_of(node: Node) -> Node | None:
    """Return a node whose inputs are read under separate predicates."""
    return node if node.op == "gemm_sum" and any(node.attrs["guards"]) else None


def _single_row_predicate(builder: StepBuilder, predicate: Predicate | None) -> Predicate | None:
    """Return a predicate that the executor can evaluate: of whole results, by one row, as `ROWS_WORD` defines."""
    return (
        predicate
        if predicate is not None and predicate.parts == 1 and builder.shape(predicate.tensor)[0] == 1
        else None
    )


_Read: TypeAlias = "tuple[int, int, Predicate | None]"
"""First byte, end, and the predicate of the reader."""


class _OutsideReads:
    """Bytes of storages that are read, in blocks, and under which predicates."""

    def __init__(self, builder: StepBuilder, runs: Sequence[_PredicatedSteps]) -> None:
        self._extent, self._sizes = extents_of(builder), builder.sizes
        self._found: dict[tuple[Storage, int], set[_Read]] = {}
        for run in runs:
            for i, predicate in set(run.reads):
                self._add(i, predicate)
        for i in builder.graph.outputs:
            self._add(i, None)

    def is_read_outside(self, tensor: int, predicate: Predicate) -> bool:
        """Whether steps without this predicate read part of a tensor."""
        _, first = self._extent(tensor)
        end = first + self._sizes[tensor]
        return any(
            by != predicate and start < end and first < stop
            for block in self._blocks(tensor)
            for start, stop, by in self._found.get(block, ())
        )

    def _add(self, tensor: int, predicate: Predicate | None) -> None:
        first = self._extent(tensor)[1]
        for block in self._blocks(tensor):
            self._found.setdefault(block, set()).add((first, first + self._sizes[tensor], predicate))

    def _blocks(self, tensor: int) -> Iterator[tuple[Storage, int]]:
        storage, first = self._extent(tensor)
        for block in range(first >> _BLOCK_BITS, (first + self._sizes[tensor] - 1 >> _BLOCK_BITS) + 1):
            yield storage, block
