"""Where the values of a plan lie while it runs: slots that share memory once their readers are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.runtime.cpu.arena import address_of, aligned_zeros

_SPARE_ROWS = 16
"""Rows beyond the last that a register tile may read."""


class Buffers:
    """Slots of a program and the memory behind them.

    A slot is (address, bytes from row to row), the form that steps read. Several slots may share one buffer; all
    buffers have the same number of rows and grow together.
    """

    def __init__(self) -> None:
        self._strides: list[int] = []  # of each buffer
        self._buffer_of: list[int | None] = []  # of each slot; None = memory of the caller
        self._memory: list[NDArray[np.uint8]] = []
        self._free: dict[int, list[int]] = {}
        self.rows = 0
        self.slots = np.zeros((0, 2), np.int64)
        self.slots_address = 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(block.nbytes for block in self._memory)

    def outside(self) -> int:
        """A slot whose address each call sets."""
        self._buffer_of.append(None)
        return len(self._buffer_of) - 1

    def slot(self, row_bytes: int) -> int:
        """A new slot with rows of at least `row_bytes`, in a buffer that nobody uses."""
        stride = -(-row_bytes // 64) * 64
        if self._free.get(stride):
            buffer = self._free[stride].pop()
        else:
            self._strides.append(stride)
            buffer = len(self._strides) - 1
        self._buffer_of.append(buffer)
        return len(self._buffer_of) - 1

    def stride(self, slot: int) -> int:
        """Bytes from row to row; 0 where the caller brings the memory."""
        buffer = self._buffer_of[slot]
        return 0 if buffer is None else self._strides[buffer]

    def give_back(self, slots: Sequence[int]) -> None:
        """Let later slots use the buffers of `slots`."""
        for slot in slots:
            buffer = self._buffer_of[slot]
            if buffer is not None:
                self._free.setdefault(self._strides[buffer], []).append(buffer)

    def reserve(self, rows: int) -> None:
        """Make all buffers hold at least `rows` rows. Contents are lost when they grow."""
        if rows <= self.rows and len(self._memory) == len(self._strides):
            return
        self.rows = max(rows, self.rows)
        self._memory = [aligned_zeros((self.rows + _SPARE_ROWS) * stride) for stride in self._strides]
        self.slots = np.zeros((len(self._buffer_of), 2), np.int64)
        self.slots_address = address_of(self.slots)
        for slot, buffer in enumerate(self._buffer_of):
            if buffer is not None:
                self.slots[slot] = address_of(self._memory[buffer]), self._strides[buffer]

    def place(self, slot: int, address: int, stride: int) -> None:
        """Set the memory of an outside slot."""
        self.slots[slot] = address, stride

    def view(self, slot: int, width: int, dtype: type[np.float32] | type[np.int32] = np.float32) -> NDArray[Any]:
        """The rows of an inside slot as an array ``[rows, width]``."""
        buffer = self._buffer_of[slot]
        if buffer is None:
            raise ValueError(f"slot {slot} is memory of the caller")
        stride = self._strides[buffer] // 4
        return self._memory[buffer].view(dtype).reshape(-1, stride)[: self.rows, :width]
