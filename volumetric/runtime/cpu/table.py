"""Step tables: the numbers that the compiled walker reads, written from named arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.operations import operation
from volumetric.kernels.cpu.steps import BARRIER_WORD, FIRST_ARGUMENT, OPERATION_WORD, STEP_WORDS, TAIL_WORD
from volumetric.kernels.cpu.walk import GUARD, LOOP
from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.graph.cores import Core

WALKED = {"loop": LOOP, "guard": GUARD}
"""Steps of which the walker runs the body: for each step of time, or if a column of weights is not 0 in all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One step of a table.

    Attributes
    ----------
    name, constants : the operation and what it is specialised to
    arguments : numbers in the order that the operation documents; floats are stored as float32 bits
    barrier : whether all threads wait for each other afterwards
    tail : whether it may run on the last row alone
    note : format and sizes, for profiles
    few, many : steps that ``each_piece`` runs for pieces of few rows and for others; None = nothing to do
    body : steps that a ``loop`` or ``guard`` runs
    """

    name: str
    arguments: tuple[int | float, ...]
    constants: tuple[str | int, ...] = ()
    barrier: bool = True
    tail: bool = False
    note: str = ""
    few: Record | None = None
    many: Record | None = None
    body: tuple[Record, ...] = ()

    @property
    def inner(self) -> tuple[Record, ...]:
        """The steps that it runs."""
        return tuple(record for record in (self.few, self.many, *self.body) if record is not None)

    @property
    def is_operation(self) -> bool:
        """Whether a compiled operation does it, not the walker itself."""
        return self.name not in WALKED

    @property
    def label(self) -> str:
        """What a profile calls it."""
        return self.inner[0].label if self.inner else f"{self.name} {self.note}".rstrip()


def arguments(names: Sequence[str], **given: int | float) -> tuple[int | float, ...]:
    """`given` in the order of `names`; every name must be given, and no other."""
    if set(names) != set(given):
        raise TypeError(f"arguments differ from the operation's: {sorted(set(names) ^ set(given))}")
    return tuple(given[name] for name in names)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepTable:
    """Steps in memory: `words` ``[…, STEP_WORDS]`` at `address`; behind the steps stand those that steps run.

    Attributes
    ----------
    body : steps before the tail
    stops : what runs on its own before a step, in order
    labels : what each step does, for profiles
    """

    words: NDArray[np.int64]
    address: int
    steps: int
    body: int
    stops: tuple[tuple[int, Core], ...]
    labels: tuple[str, ...]


def compile_table(records: Sequence[Record], stops: Sequence[tuple[int, Core]] = ()) -> StepTable:
    """Write `records` as a table; operations that no table used before are compiled or loaded now."""
    inner = [one for record in records for one in record.inner]
    words = np.zeros((len(records) + len(inner), STEP_WORDS), np.int64)
    places = iter(
        range(address_of(words) + words.strides[0] * len(records), address_of(words) + words.nbytes, 8 * STEP_WORDS)
    )
    for row, record in zip(words, [*records, *inner], strict=True):
        if record.is_operation:
            row[OPERATION_WORD] = operation(record.name, *record.constants)
        else:
            row[OPERATION_WORD] = WALKED[record.name]
        row[BARRIER_WORD] = record.barrier
        row[TAIL_WORD] = record.tail
        if record.body:
            runs = [next(places) for _ in record.body]
            values = (runs[0], len(runs), *record.arguments)
        else:
            runs = [0 if one is None else next(places) for one in (record.few, record.many)] if record.inner else []
            values = (*record.arguments, *runs)
        for i, value in enumerate(values):
            row[FIRST_ARGUMENT + i] = _bits(value)
    return StepTable(
        words=words,
        address=address_of(words),
        steps=len(records),
        body=next((at for at, record in enumerate(records) if record.tail), len(records)),
        stops=tuple(stops),
        labels=tuple(record.label for record in records),
    )


def _bits(value: int | float) -> int:
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return int(value)
