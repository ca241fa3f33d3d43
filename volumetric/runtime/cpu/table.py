"""Step tables: the numbers that the compiled walker reads, written from named arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.operations import operation
from volumetric.kernels.cpu.steps import BARRIER_WORD, FIRST_ARGUMENT, OPERATION_WORD, STEP_WORDS, TAIL_WORD
from volumetric.runtime.cpu.arena import address_of


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
    """

    name: str
    arguments: tuple[int | float, ...]
    constants: tuple[str | int, ...] = ()
    barrier: bool = True
    tail: bool = False
    note: str = ""

    @property
    def label(self) -> str:
        """What a profile calls it."""
        return f"{self.name} {self.note}".rstrip()


def arguments(names: Sequence[str], **given: int | float) -> tuple[int | float, ...]:
    """`given` in the order of `names`; every name must be given, and no other."""
    if set(names) != set(given):
        raise TypeError(f"arguments differ from the operation's: {sorted(set(names) ^ set(given))}")
    return tuple(given[name] for name in names)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepTable:
    """Steps in memory: `words` ``[steps, STEP_WORDS]`` at `address`; `labels` tells profiles what each one does."""

    words: NDArray[np.int64]
    address: int
    steps: int
    labels: tuple[str, ...]


def compile_table(records: Sequence[Record]) -> StepTable:
    """Write `records` as a table; operations that no table used before are compiled or loaded now."""
    words = np.zeros((len(records), STEP_WORDS), np.int64)
    for row, record in zip(words, records, strict=True):
        row[OPERATION_WORD] = operation(record.name, *record.constants)
        row[BARRIER_WORD] = record.barrier
        row[TAIL_WORD] = record.tail
        for i, value in enumerate(record.arguments):
            row[FIRST_ARGUMENT + i] = _bits(value)
    return StepTable(words=words, address=address_of(words), steps=len(words), labels=tuple(r.label for r in records))


def _bits(value: int | float) -> int:
    if isinstance(value, float):
        return int(np.float32(value).view(np.uint32))
    return int(value)
