"""One native call: the rows of each sequence, and the control block that describes them to the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import CallScratch, address_of, aligned_zeros
from volumetric.devices.cpu.cpu_state import CpuState
from volumetric.devices.cpu.kernels.ragged import FEW_ROWS
from volumetric.devices.cpu.kernels.step_words import (
    COUNT_WORD,
    PIECES_WORD,
    POSITIONS_WORD,
    ROWS_WORD,
    SEQUENCE_WORDS,
    SLOTS_WORD,
    TAIL_POSITIONS_WORD,
    TAIL_ROWS_WORD,
    WANTED_WORD,
)
from volumetric.devices.cpu.kv_cache import rows_in_blocks
from volumetric.devices.cpu.step_table import StepTable


class ControlBlock:
    """The control block of a network's calls, in `scratch`, and the lists it points to.

    Parameters
    ----------
    opened_bytes : bytes per row of the bfloat16 copy of a cache, 0 for no copies
    """

    def __init__(self, scratch: CallScratch, opened_bytes: int) -> None:
        self._scratch = scratch
        self._opened_bytes = opened_bytes
        self._opened_memory = aligned_zeros(0)
        self._pieces: NDArray[np.int64] = np.zeros((0, SEQUENCE_WORDS), np.int64)
        self._rows: NDArray[np.int64] = np.zeros((3, 0), np.int64)
        self._reserve(1, 1)

    @property
    def nbytes(self) -> int:
        """Bytes of scratch and of bfloat16 copies of caches."""
        return self._scratch.nbytes + self._opened_memory.nbytes

    def _reserve(self, pieces: int, rows: int) -> None:
        if pieces > len(self._pieces):
            self._pieces = np.zeros((pieces, SEQUENCE_WORDS), np.int64)
            self._scratch.words[PIECES_WORD] = address_of(self._pieces)
        if rows > self._rows.shape[1]:
            self._rows = np.zeros((3, rows), np.int64)
            for word, list_ in zip((POSITIONS_WORD, WANTED_WORD, TAIL_POSITIONS_WORD), self._rows, strict=True):
                self._scratch.words[word] = address_of(list_)

    def fill(
        self, lengths: Sequence[int], states: Sequence[CpuState], output_rows: Sequence[range], table: StepTable
    ) -> list[int]:
        """Describe a call to its steps; return the rows that have an output, ascending.

        Parameters
        ----------
        lengths, states : rows of each sequence, and its state
        output_rows : rows that have an output
        table : the table to run
        """
        ends = list(accumulate(lengths))
        rows = ends[-1]
        self._reserve(len(lengths), rows)
        rooms = [(0, 0)] * len(lengths)
        if self._opened_bytes:
            places = [state.memory.visible_rows(state.position, n) for state, n in zip(states, lengths, strict=True)]
            many = [i for i, length in enumerate(lengths) if length > FEW_ROWS]
            for i, room in zip(many, self._opened_rooms([places[i] for i in many]), strict=True):
                rooms[i] = room
        outputs: list[int] = []
        for i, (state, end) in enumerate(zip(states, ends, strict=True)):
            first, position = end - lengths[i], state.position
            self._pieces[i, :6] = first, end, position - first, state.memory.table, *rooms[i]
            self._rows[0, first:end] = range(position, position + lengths[i]) if end - first > 1 else position
            outputs += range(first + output_rows[i].start, first + output_rows[i].stop)
        if len(outputs) < rows:
            self._rows[1, : len(outputs)] = outputs
        self._rows[2, : len(outputs)] = self._rows[0, outputs]
        words = self._scratch.words
        words[COUNT_WORD], words[ROWS_WORD], words[TAIL_ROWS_WORD] = len(lengths), rows, len(outputs)
        words[SLOTS_WORD] = address_of(table.slots)
        return outputs

    def _opened_rooms(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Memory for unpacked caches of so many rows, layer by layer: address, and number of rows."""
        places = [rows_in_blocks(count) for count in rows]
        size = sum(places) * self._opened_bytes
        if size > self._opened_memory.size:
            self._opened_memory = aligned_zeros(max(2 * self._opened_memory.size, size))
        starts = accumulate(places, initial=0)
        base = address_of(self._opened_memory)
        return [(base + start * self._opened_bytes, count) for start, count in zip(starts, places, strict=False)]
