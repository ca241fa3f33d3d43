"""Batches on the CPU: the step table, and the control blocks that give each row its own position and caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.batch import BLOCKS_WORD, EACH_ROW_ARGUMENTS
from volumetric.kernels.cpu.steps import (
    CONTROL_WORDS,
    POSITION_WORD,
    ROWS_WORD,
    SCRATCH_BYTES_WORD,
    SCRATCH_WORD,
    SLOTS_WORD,
    STATES_WORD,
    TAIL_ALL,
    TAIL_MODE_WORD,
)
from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.cpu.buffers import Buffers
from volumetric.runtime.cpu.state import CpuState
from volumetric.runtime.cpu.table import Record, StepTable, arguments, compile_table

_POSITION_FREE = frozenset(
    {
        "embedding",
        "norm",
        "prepare",
        "rows_product",
        "add",
        "multiply",
        "concat",
        "activation",
        "softmax",
        "softcap",
    }
)
"""Operations that look at nothing but their rows; every other one runs for each sequence by itself."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BatchTable:
    """The table of a batch, and the steps that it runs for each row."""

    table: StepTable
    inner: StepTable


def compile_batch(records: Sequence[Record]) -> BatchTable:
    """Write the table of a batch from the records of a single row whose products take several."""
    alone = [record for record in records if record.name not in _POSITION_FREE]
    inner = compile_table(alone)
    size = inner.words.strides[0]
    addresses = iter(range(inner.address, inner.address + size * inner.steps, size) if alone else ())
    outer = [
        record
        if record.name in _POSITION_FREE
        else Record(
            name="each_row",
            arguments=arguments(EACH_ROW_ARGUMENTS, inner=next(addresses)),
            barrier=record.barrier,
            note=record.label,
        )
        for record in records
    ]
    return BatchTable(table=compile_table(outer), inner=inner)


class Blocks:
    """Control blocks ``[threads, rows, CONTROL_WORDS]`` in which each row is row 0 of a call of its own.

    Scratch is that of the thread that runs the row, whichever share of the work it takes over.
    """

    def __init__(self) -> None:
        self._blocks: NDArray[np.int64] = np.zeros((0, 0, CONTROL_WORDS), np.int64)
        self._slots: NDArray[np.int64] = np.zeros((0, 0, 2), np.int64)

    def fill(self, control: NDArray[np.int64], states: Sequence[CpuState], buffers: Buffers, threads: int) -> None:
        """Write the blocks of a call whose own `control` is ready, and let `control` point to them."""
        rows = len(states)
        if self._blocks.shape[:2] != (threads, rows) or self._slots.shape[1] != len(buffers.slots):
            self._blocks = np.zeros((threads, rows, CONTROL_WORDS), np.int64)
            self._slots = np.empty((rows, len(buffers.slots), 2), np.int64)
        self._slots[:] = buffers.slots
        self._slots[:, :, 0] += np.arange(rows)[:, None] * buffers.slots[:, 1]
        blocks, size = self._blocks, control[SCRATCH_BYTES_WORD]
        blocks[:, :, ROWS_WORD] = 1
        blocks[:, :, POSITION_WORD] = [state.position for state in states]
        blocks[:, :, TAIL_MODE_WORD] = TAIL_ALL
        blocks[:, :, SLOTS_WORD] = address_of(self._slots) + self._slots.strides[0] * np.arange(rows)
        blocks[:, :, STATES_WORD] = [state.memory.table for state in states]
        blocks[:, :, SCRATCH_WORD] = control[SCRATCH_WORD] + size * np.arange(threads)[:, None]
        blocks[:, :, SCRATCH_BYTES_WORD] = 0
        control[BLOCKS_WORD] = address_of(blocks)
