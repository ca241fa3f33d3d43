"""Fuse runs of steps on the same elements into one step that executes them block by block.

Otherwise an array larger than a core's cache goes to memory and back for every step. Steps that do not need the
elements of others move before such a run, so that runs are as long as the data flow allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from volumetric.devices.cpu.graph.extents import Storage, extents_of
from volumetric.devices.cpu.step_builder import BLOCKED, OperationStep, StepBuilder

_SMALLEST = 1 << 18
"""Bytes of an array from which this pays: smaller arrays stay in a cache anyway."""
_BLOCK = 1 << 17
"""Bytes of all arrays of a block."""
_NAMES = frozenset({"unary", "unary_grad", "binary", "dropout"})


_Extent: TypeAlias = tuple[int, int]
"""First byte in a storage, and their number."""


@dataclass(slots=True)
class _TouchedStorage:
    """Storages that steps read and write: those that all threads partition in the same way, and the others."""

    reads: set[Storage] = field(default_factory=set)
    writes: set[Storage] = field(default_factory=set)
    alike: dict[Storage, _Extent] = field(default_factory=dict)
    apart: set[Storage] = field(default_factory=set)

    def add(self, storage: Storage, extent: _Extent, *, batch_invariant: bool) -> None:
        """Record a tensor."""
        if not batch_invariant or self.alike.setdefault(storage, extent) != extent:
            self.apart.add(storage)

    def union(self, other: _TouchedStorage) -> _TouchedStorage:
        """Return the union of both."""
        both = _TouchedStorage(
            self.reads | other.reads, self.writes | other.writes, {**self.alike}, self.apart | other.apart
        )
        for storage, extent in other.alike.items():
            both.add(storage, extent, batch_invariant=True)
        return both


def merge_blocked_steps(builder: StepBuilder) -> None:
    """Rewrite the steps of a step list."""
    touched = _touched_storage_of(builder)
    steps: list[OperationStep] = []
    run: list[OperationStep] = []
    run_touched = _TouchedStorage()

    def close() -> None:
        nonlocal run_touched
        steps.extend([_blocked_step(run, len(run_touched.reads | run_touched.writes))] if len(run) > 1 else run)
        run.clear()
        run_touched = _TouchedStorage()

    for step in builder.steps:
        own = touched(step)
        if step.name not in _NAMES or 4 * int(step.flat) < _SMALLEST:
            if (
                step.host
                or step.inner
                or run_touched.writes & (own.reads | own.writes)
                or own.writes & run_touched.reads
            ):
                close()
            steps.append(step)
            continue
        both = run_touched.union(own)
        # It would find nothing in the cache, and occupy memory.
        strange = own.reads.isdisjoint(run_touched.reads | run_touched.writes)
        if run and (strange or step.flat != run[0].flat or both.apart & both.writes):
            close()
            both = own
        run.append(step)
        run_touched = both
    close()
    builder.steps[:] = steps


def _touched_storage_of(builder: StepBuilder) -> Callable[[OperationStep], _TouchedStorage]:
    """Return a function that returns the storages of a step."""
    extent = extents_of(builder)

    def touched(step: OperationStep) -> _TouchedStorage:
        touches = _TouchedStorage()
        for tensors, storages in ((step.reads, touches.reads), (step.writes, touches.writes)):
            for i in tensors:
                storage, first = extent(i)
                storages.add(storage)
                touches.add(storage, (first, builder.sizes[i]), batch_invariant=i in step.shared)
        return touches

    return touched


def _blocked_step(run: list[OperationStep], arrays: int) -> OperationStep:
    reads = dict.fromkeys(i for step in run for i in step.reads)
    writes = dict.fromkeys(i for step in run for i in step.writes)
    alone = {i for step in run for i in (*step.reads, *step.writes) if i not in step.shared}
    return OperationStep(
        name=BLOCKED,
        arguments=(max(1, 4 * int(run[0].flat) * arrays // _BLOCK),),
        reads=tuple(reads),
        writes=tuple(writes),
        flat=run[0].flat,
        shared=tuple(i for i in {**reads, **writes} if i not in alone),
        work=sum(step.work for step in run),
        note=" ".join(step.label for step in run),
        body=tuple(run),
    )
