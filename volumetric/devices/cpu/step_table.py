"""Step tables: the numbers that the compiled executor reads, built from a step list; addresses are bound last."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.compile_operations import compile_operations
from volumetric.devices.cpu.kernels.step_words import (
    BARRIER_WORD,
    FIRST_ARGUMENT,
    OPERATION_WORD,
    STEP_WORDS,
    TAIL_WORD,
)
from volumetric.devices.cpu.placement import StoragePlacement, barriers, padded_bytes, predicate_barriers
from volumetric.devices.cpu.step_builder import WALKED, Operation, OperationStep, StepBuilder, TensorAddress

_NUMBERS = itertools.count()
"""Names that the thread controller compares: addresses are reused after a table is freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """Steps that run together.

    Attributes
    ----------
    name : unique in this process
    address, count : address and number of the steps
    first : index of the first one among the step list
    body : number of them before the tail
    work : estimated duration on one core, in nanoseconds
    meetings : number of barriers in it
    host : its Python function, if it is one
    label : label of the Python function in profiles
    tail : whether all of it belongs to the tail
    """

    name: str
    address: int = 0
    count: int = 0
    first: int = 0
    body: int = 0
    work: float = 0.0
    meetings: int = 0
    host: Callable[[Any], None] | None = None
    label: str = ""
    tail: bool = False


class StepTable:
    """Steps in memory; nested steps follow those of the step list.

    Parameters
    ----------
    draft : compiled by `compile_steps`
    placement : placement of its tensors
    apart : steps at the end that are not part of a usual run
    ends : number of steps after each possible last node

    Attributes
    ----------
    draft, placement : its sources
    parts : parts to run, in order
    apart : number of those steps, which follow the last part
    labels : label of each step, for profiles
    slots : address of each tensor, and bytes from row to row, as steps read them
    scratch : bytes that each thread needs
    rows : maximum rows; 0 before the table is bound
    """

    def __init__(
        self, builder: StepBuilder, placement: StoragePlacement, *, apart: int = 0, ends: Sequence[int] = ()
    ) -> None:
        self.placement = placement
        self.ends = ends
        self.scratch: int = builder.scratch
        self.rows = self._spare = 0
        self.draft = builder
        self._arena: Array = np.zeros(0, np.uint8)
        every = list(builder.steps)
        for step in every:  # grows
            every += step.inner
        behind_leaves = barriers(builder.steps, placement, builder.sizes)
        behind_guards = predicate_barriers(builder.steps, placement, builder.sizes, behind_leaves)
        meets = {id(step): met for step, met in zip(builder.steps, behind_guards, strict=True) if met}
        meets |= zip(map(id, placement.leaves), behind_leaves, strict=True)
        if apart:  # they may be repeated
            meets[id(placement.leaves[-1])] = True
        self._words = np.zeros((len(every), STEP_WORDS), np.int64)
        self.slots: Array = np.zeros((len(builder.sizes), 2), np.int64)
        self._later: list[tuple[int, int, int]] = []
        behind = len(builder.steps)
        for at, (step, row) in enumerate(zip(every, self._words, strict=True)):
            row[BARRIER_WORD], row[TAIL_WORD] = meets.get(id(step), False), step.tail
            if step.host is None:
                row[OPERATION_WORD] = WALKED.get(step.name) or builder.library.address(step.name, *step.constants)
                self._write_arguments(at, step, behind)
            behind += len(step.inner)
        self._patches = np.array(self._later, np.int64).reshape(-1, 3)
        places = np.array(placement.of, np.int64)[self._patches[:, 1]]
        self._starts = np.array(placement.start, np.int64)
        lent = [number for number, storage in placement.storages.items() if storage.home == "caller"]
        at = np.stack([self._patches[:, 0], self._starts[self._patches[:, 1]] + self._patches[:, 2]])
        self._lent = {number: at[:, places == number] for number in lent}
        count = len(builder.steps) - apart
        self.apart = apart
        self.labels: tuple[str, ...] = tuple(step.label for step in builder.steps[:count] if step.host is None)
        self.parts: tuple[TablePart, ...] = self._split(builder.steps[:count], meets)

    def _write_arguments(self, at: int, step: OperationStep, behind: int) -> None:
        """Write the arguments of step `at`; its nested steps begin at step `behind`."""
        values: list[Any] = [*step.arguments]
        if step.body:
            values = [self._address(behind), len(step.body), *values]
        behind += len(step.body)
        numbers: list[int] = []
        for word, value in enumerate(values, FIRST_ARGUMENT):
            number = value
            if type(value) is int:  # as most are
                pass
            elif isinstance(value, TensorAddress):
                self._later.append((at * STEP_WORDS + word, value.tensor, value.offset))
                number = 0
            elif isinstance(value, Operation):
                number = self.draft.library.address(value.name, *value.constants)
            elif isinstance(value, OperationStep):
                number, behind = self._address(behind), behind + 1
            elif isinstance(value, float):
                number = int(np.float32(value).view(np.uint32))
            numbers.append(number)
        self._words[at, FIRST_ARGUMENT : FIRST_ARGUMENT + len(numbers)] = numbers

    def _address(self, step: int) -> int:
        return address_of(self._words) + step * 8 * STEP_WORDS

    def _split(self, steps: Sequence[OperationStep], meets: Mapping[int, bool]) -> tuple[TablePart, ...]:
        """Split the table at Python functions; `meets` says of steps, by identity, whether a barrier follows them."""
        parts: list[TablePart] = []
        for host, some in itertools.groupby(enumerate(steps), key=lambda pair: pair[1].host):
            indices, run = zip(*some, strict=True)
            name, tail = f"table {next(_NUMBERS)}", run[0].tail
            if host is not None:
                at = zip(indices, run, strict=True)
                parts += [TablePart(name=name, host=host, label=step.label, tail=tail, first=i) for i, step in at]
                continue
            first = indices[0]
            parts.append(
                TablePart(
                    name=name,
                    address=self._address(first),
                    count=len(run),
                    first=first,
                    body=sum(not step.tail for step in run),
                    work=sum(step.work for step in run),
                    meetings=sum(meets.get(id(each), False) for step in run for each in _steps_with_barriers(step)),
                    tail=tail,
                )
            )
        return tuple(parts)

    # ---- memory

    def bind(self, arena: Array, fixed: Mapping[int, int] | None = None, *, rows: int = 1, spare: int = 0) -> bool:
        """Write the addresses of tensors; return False if they are unchanged.

        Parameters
        ----------
        arena : memory for `rows` + `spare` times the arena of the placement
        fixed : address of each storage outside of it, except the caller's
        rows : maximum rows, if rows are open
        spare : further rows that may be read
        """
        if arena is self._arena and rows == self.rows:
            return False
        self._arena = arena
        self.rows: int = rows
        self._spare = spare
        fixed, base = fixed or {}, address_of(arena)
        for number, storage in self.placement.storages.items():
            at = base + storage.offset * (rows + spare) if storage.home == "arena" else fixed.get(number, 0)
            self.slots[storage.tensors] = at, padded_bytes(storage.size)
        self.slots[:, 0] += self._starts
        self._words.reshape(-1)[self._patches[:, 0]] = self.slots[self._patches[:, 1], 0] + self._patches[:, 2]
        return True

    def set_address(self, tensor: int, address: int, stride: int = 0) -> None:
        """Set the address of a tensor in the caller's array."""
        number = self.placement.of[tensor]
        tensors = self.placement.storages[number].tensors
        self.slots[tensors, 0], self.slots[tensors, 1] = self._starts[tensors] + address, stride
        words, offsets = self._lent[number]
        self._words.reshape(-1)[words] = offsets + address

    def bytes_of(self, tensor: int) -> Array:
        """Memory of a tensor in the arena, all rows."""
        storage = self.placement.storages[self.placement.of[tensor]]
        start = storage.offset * (self.rows + self._spare) + self.placement.start[tensor]
        return self._arena[start : start + padded_bytes(storage.size) * self.rows]


def _steps_with_barriers(step: OperationStep) -> tuple[OperationStep, ...]:
    """Return the steps whose barriers count: those of a body if its work counts."""
    return (step, *step.body) if step.name in WALKED and step.work else (step,)


def compile_steps(builders: Iterable[StepBuilder]) -> None:
    """Compile the operations of `drafts` from one library, or load them from the cache."""
    some = list(builders)
    operations = (one for draft in some for step in draft.steps for one in step.operations())
    compile_operations(operations, some[0].library)
