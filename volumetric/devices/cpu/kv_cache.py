"""Keys and values of a layer as attention reads them: rows are appended, and dropped once they leave the window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.rope_kv_append import STORAGE_BYTES
from volumetric.run.kv_value import KvValue, QuantisedKv, as_codes, as_numbers, kv_row_count, last_rows, pad_rows_before

_FIRST = 32  # rows of the first allocation, which schedulers assume for a short sequence
_WINDOW = 256  # windows of fewer rows never drop rows
BLOCK = 16  # rows of keys stored side by side

KVStorage = Literal["float32", "float16", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvPair:
    """Keys and values that an attention kernel reads together.

    Attributes
    ----------
    keys, values : keys of the two states; None: they live one step, and layers of the same form share the memory
    """

    kv_heads: int
    head_dim: int
    keys: str | None = None
    values: str | None = None


def _padded_head_dim(head_dim: int) -> int:
    return -(-head_dim // 16) * 16


def rows_in_blocks(rows: int) -> int:
    """Number of rows in the whole blocks needed for `rows` rows."""
    return -(-rows // BLOCK) * BLOCK


def grown_capacity(capacity: int, needed: int, most: int) -> int:
    """Return the new capacity if `capacity` is too small for `needed`: double, but no more than `most`."""
    return rows_in_blocks(max(needed, min(max(_FIRST, 2 * capacity), most)))


class KvCache:
    """Keys and values of a pair, for the rows from `first` on.

    Without a window all rows stay, and capacity doubles when exceeded. With a window, rows that no later row reads are
    dropped when room is short; so there are never more than twice the window, or the window plus the rows of a call.

    Parameters
    ----------
    window : number of last rows that are read again; None: all
    limit : maximum rows of a sequence

    Attributes
    ----------
    window : number of last rows that are read again; None: all, or so many that none would ever be dropped
    first : position of the first stored row, a multiple of 16
    capacity : rows that fit
    """

    def __init__(self, pair: KvPair, storage: KVStorage, *, window: int | None, limit: int) -> None:
        self._pair, self._limit = pair, limit
        self._storage: KVStorage = storage
        most = limit if window is None else 2 * max(window, _WINDOW)
        self.window: int | None = window if most < limit else None
        self._most = min(most, limit)
        self.first = self.capacity = 0
        self._halves = self._new_halves(0)

    @property
    def words(self) -> tuple[int, int, int, int]:
        """Values read by steps: addresses of keys and values, `capacity`, `first`."""
        keys, values = self._halves
        return address_of(keys.memory), address_of(values.memory), self.capacity, self.first

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(half.memory.nbytes for half in self._halves)

    @property
    def oldest_restorable(self) -> int:
        """Oldest position beyond 0 that can be restored: everything it reads is stored."""
        return self.first + self.window - 1 if self.window is not None and self.first else 0

    def free_rows(self, position: int) -> int:
        """Number of rows that fit from `position` on without moving rows."""
        return self.capacity - self._rows_held(position, self.first)

    def visible_rows(self, position: int, rows: int) -> int:
        """Number of rows that attention reads here in a call of `rows` rows from `position` on."""
        return rows + self._rows_held(position, self.first)

    @property
    def growth(self) -> tuple[int | None, bool]:
        """Equal for caches of a state that grow at the same calls."""
        return self.window, self._pair.keys is None

    def capacity_for(self, position: int, rows: int) -> int:
        """Return the capacity needed for `rows` rows from `position` on: the present one, or a larger one."""
        if rows <= self.free_rows(position):
            return self.capacity
        stored_rows = self._rows_held(position, self._needed_from(position))
        return max(self.capacity, grown_capacity(self.capacity, stored_rows + rows, self._most))

    def capacity_of_copy(self, position: int, *, fit: bool) -> int:
        """Return the capacity of a copy up to `position`: exactly that with `fit`, else with room to continue."""
        stored_rows = self._rows_held(position, self.first)
        if fit or not stored_rows:
            return rows_in_blocks(stored_rows)
        roomy = grown_capacity(stored_rows, min(stored_rows + 1, self._most), self._most)
        return min(self.capacity, roomy) if self.capacity > stored_rows else roomy

    def bytes_of(self, capacity: int) -> int:
        """Return the bytes of keys and values of so many rows, a multiple of 64."""
        return sum(_KvHalf.size(self._pair, capacity, self._storage, keys=keys) for keys in (True, False))

    def reserve(self, position: int, rows: int, memory: NDArray[np.uint8] | None = None) -> bool:
        """Make room for `rows` rows from `position` on; return whether `words` changed.

        Parameters
        ----------
        memory : zeros, `bytes_of` the capacity from `capacity_for`, if that is a new one; None: allocate
        """
        if rows <= self.free_rows(position):
            return False
        self._start_at(self._needed_from(position), position, rows, memory)
        return True

    def copy(self, position: int, capacity: int, memory: NDArray[np.uint8] | None) -> KvCache:
        """Return an independent cache with the same rows up to `position`, in `memory`; see `reserve`."""
        twin = KvCache(self._pair, self._storage, window=self.window, limit=self._limit)
        twin.first, twin.capacity, twin._halves = self.first, capacity, self._new_halves(capacity, memory)
        twin._move_to_front(self._halves, 0, self._rows_held(position, self.first))
        return twin

    def clear(self) -> None:
        """Start over with an empty cache."""
        self.first = 0

    def read(self, position: int, *, keys: bool) -> KvValue:
        """Return a copy of the stored rows up to `position`, ``[rows, kv_heads, head_dim]``."""
        return self._half(keys=keys).read(position - self.first)

    def fill(self, keys: KvValue, values: KvValue, position: int) -> None:
        """Store the last rows before `position`, as many as fit; earlier rows become zeros."""
        first = max(0, position - kv_row_count(keys)) // BLOCK * BLOCK if self.window is not None else 0
        if position - first > self._most:
            first = self._needed_from(position)
        self.first = first
        if position - first > self.capacity:
            self._start_at(first, first, position - first)
        for half, value in zip(self._halves, (keys, values), strict=True):
            half.write(pad_rows_before(last_rows(value, position - first), position - first))

    def write(self, value: KvValue, *, keys: bool) -> None:
        """Replace the first stored rows."""
        self._half(keys=keys).write(value)

    def _half(self, *, keys: bool) -> _KvHalf:
        return self._halves[0 if keys else 1]

    def _needed_from(self, position: int) -> int:
        """First row at a block boundary that a row at `position` needs."""
        return 0 if self.window is None else max(0, position + 1 - self.window) // BLOCK * BLOCK

    def _rows_held(self, position: int, first: int) -> int:
        """Number of stored rows from `first` on at `position`; 0 for rows that live one step."""
        return position - first if self._pair.keys is not None else 0

    def _start_at(self, first: int, position: int, rows: int, memory: NDArray[np.uint8] | None = None) -> None:
        """Store rows from `first` on, keeping stored rows up to `position`, with room for `rows` more."""
        dropped, stored_rows = first - self.first, self._rows_held(position, first)
        capacity, old = grown_capacity(self.capacity, stored_rows + rows, self._most), self._halves
        if capacity > self.capacity:
            self.capacity: int = capacity
            self._halves = self._new_halves(capacity, memory)
        self._move_to_front(old, dropped, stored_rows)
        self.first: int = first

    def _new_halves(self, capacity: int, memory: NDArray[np.uint8] | None = None) -> tuple[_KvHalf, _KvHalf]:
        """Return keys and values of so many rows, one after the other in `memory`, which is zeros; None: allocate."""
        if memory is None:
            memory = aligned_zeros(self.bytes_of(capacity))
        size = _KvHalf.size(self._pair, capacity, self._storage, keys=True)
        keys = _KvHalf(self._pair, capacity, self._storage, memory[:size], keys=True)
        return keys, _KvHalf(self._pair, capacity, self._storage, memory[size:], keys=False)

    def _move_to_front(self, halves: tuple[_KvHalf, _KvHalf], start: int, rows: int) -> None:
        """Copy `rows` rows from `start` on to the front; source and target may overlap."""
        if rows and self._pair.keys is not None:
            for mine, theirs in zip(self._halves, halves, strict=True):
                mine.move_to_front(theirs, start, rows_in_blocks(rows))


class _KvHalf:
    """The keys, or the values, of one layer: codes ``[kv_heads, blocks, …]``; int8 scales follow the codes.

    Keys are ``[kv_heads, capacity / 16, head_dim, 16]``, values ``[kv_heads, capacity, head_dim rounded up to 16]``.
    """

    def __init__(
        self, pair: KvPair, capacity: int, storage: KVStorage, memory: NDArray[np.uint8], *, keys: bool
    ) -> None:
        self._storage: KVStorage = storage
        self._block = BLOCK if keys else 1
        self._width = pair.head_dim
        inner = (pair.head_dim, BLOCK) if keys else (_padded_head_dim(pair.head_dim),)
        shape = (pair.kv_heads, capacity // self._block, *inner)
        size = math.prod(shape) * STORAGE_BYTES[storage]
        scales = 4 * pair.kv_heads * capacity if storage == "int8" else 0
        self.memory = memory
        self._codes = memory[:size].view(storage).reshape(shape)
        self._scales = memory[size : size + scales].view(np.float32).reshape(pair.kv_heads, -1)

    @staticmethod
    def size(pair: KvPair, capacity: int, storage: KVStorage, *, keys: bool) -> int:
        """Return bytes of so many rows, a multiple of 64."""
        numbers = pair.head_dim if keys else _padded_head_dim(pair.head_dim)
        row = numbers * STORAGE_BYTES[storage] + (4 if storage == "int8" else 0)
        return -(-pair.kv_heads * capacity * row // 64) * 64

    def move_to_front(self, other: _KvHalf, start: int, rows: int) -> None:
        """Copy `rows` rows of `other`, which may be this cache, from `start` on to the front; both multiples of 16."""
        blocks, first = rows // self._block, start // self._block
        self._codes[:, :blocks] = other._codes[:, first : first + blocks]
        if self._scales.size:
            self._scales[:, :rows] = other._scales[:, start : start + rows]

    def read(self, rows: int) -> KvValue:
        """Return a copy of the first rows ``[rows, kv_heads, head_dim]``."""
        if self._block == 1:
            numbers = self._codes[:, :rows, : self._width].transpose(1, 0, 2).copy()
        else:
            panels = self._codes[:, : -(-rows // BLOCK)].transpose(1, 3, 0, 2)
            numbers = panels.reshape(-1, *panels.shape[2:])[:rows].copy()
        return QuantisedKv(numbers, self._scales.T[:rows].copy()) if self._scales.size else numbers

    def write(self, value: KvValue) -> None:
        """Store the rows ``[rows, kv_heads, head_dim]``, converted."""
        coded = as_codes(value) if self._storage == "int8" else None
        numbers = as_numbers(value, self._storage) if coded is None else coded.codes
        rows, *row = numbers.shape
        if coded is not None:
            self._scales[:, :rows] = coded.scales.T
        if self._block == 1:
            self._codes[:, :rows, : self._width] = numbers.transpose(1, 0, 2)
            return
        blocks = -(-rows // BLOCK)
        panels = np.zeros((blocks * BLOCK, *row), numbers.dtype)
        panels[:rows] = numbers
        self._codes[:, :blocks] = panels.reshape(blocks, BLOCK, *row).transpose(2, 0, 3, 1)
