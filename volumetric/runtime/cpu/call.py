"""One native call: which rows of which sequences it computes, and the words that tell its steps so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.pieces import FEW_ROWS
from volumetric.kernels.cpu.steps import (
    CONTROL_WORDS,
    COUNT_WORD,
    PIECE_WORDS,
    PIECES_WORD,
    POSITIONS_WORD,
    ROWS_WORD,
    SLOTS_WORD,
    TAIL_POSITIONS_WORD,
    TAIL_ROWS_WORD,
    WANTED_WORD,
)
from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.cpu.layout import Layout
from volumetric.runtime.cpu.state import CpuState


class Control:
    """The control block of an executable's calls, and the lists that it points to."""

    def __init__(self) -> None:
        self._words = np.zeros(CONTROL_WORDS, np.int64)
        self.words = memoryview(self._words.data)
        self.address = address_of(self._words)
        self._pieces: NDArray[np.int64] = np.zeros((0, PIECE_WORDS), np.int64)
        self._rows: NDArray[np.int64] = np.zeros((3, 0), np.int64)
        self._reserve(1, 1)

    def _reserve(self, pieces: int, rows: int) -> None:
        if pieces > len(self._pieces):
            self._pieces = np.zeros((pieces, PIECE_WORDS), np.int64)
            self.words[PIECES_WORD] = address_of(self._pieces)
        if rows > self._rows.shape[1]:
            self._rows = np.zeros((3, rows), np.int64)
            for word, list_ in zip((POSITIONS_WORD, WANTED_WORD, TAIL_POSITIONS_WORD), self._rows, strict=True):
                self.words[word] = address_of(list_)

    def fill(
        self, lengths: Sequence[int], states: Sequence[CpuState], wanted: Sequence[range], layout: Layout
    ) -> list[int]:
        """Write what steps need to know of a call; returns the rows that have an output, ascending.

        Parameters
        ----------
        lengths, states : rows of each sequence, and its state
        wanted : which of them have an output
        """
        ends = list(accumulate(lengths))
        rows = ends[-1]
        self._reserve(len(lengths), rows)
        tokens = [state.position + length for state, length in zip(states, lengths, strict=True)]
        rooms = [(0, 0)] * len(lengths)
        if layout.rounds_attention:
            many = [i for i, length in enumerate(lengths) if length > FEW_ROWS]
            for i, room in zip(many, layout.opened_rooms([tokens[i] for i in many]), strict=True):
                rooms[i] = room
        outputs: list[int] = []
        for i, (state, end) in enumerate(zip(states, ends, strict=True)):
            first, position = end - lengths[i], state.position
            self._pieces[i, :6] = first, end, position - first, state.memory.table, *rooms[i]
            self._rows[0, first:end] = range(position, position + lengths[i]) if end - first > 1 else position
            outputs += range(first + wanted[i].start, first + wanted[i].stop)
        if len(outputs) < rows:
            self._rows[1, : len(outputs)] = outputs
        self._rows[2, : len(outputs)] = self._rows[0, outputs]
        words = self.words
        words[COUNT_WORD], words[ROWS_WORD], words[TAIL_ROWS_WORD] = len(lengths), rows, len(outputs)
        words[SLOTS_WORD] = layout.buffers.slots_address
        return outputs

    def next_row(self, pieces: int) -> None:
        """Write the call behind the last one, which had one row with an output of each of `pieces` sequences."""
        self._pieces[:pieces, 2] += 1  # tokens before
        self._rows[0, :pieces] += 1
        self._rows[2, :pieces] += 1
