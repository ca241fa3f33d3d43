"""The state of one sequence on the CPU: its position, and memory for the declared states that grows as rows arrive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.append import STORAGE_BYTES
from volumetric.layers import StateSpec
from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_trim, has_fixed
from volumetric.runtime.state_file import Coded, Held, after_zeros, as_codes, as_numbers, reach_of, save_state

_FIRST = 256  # rows of the first allocation
_BLOCK = 16  # rows that keys keep side by side

KVStorage = Literal["float32", "float16", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Keys and values that an attention kernel reads together.

    Attributes
    ----------
    keys, values : keys of the two states; None: they live one step, and layers of one form share the memory
    """

    kv_heads: int
    head_dim: int
    keys: str | None = None
    values: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """What a state must hold, and how.

    Attributes
    ----------
    specs : the plan's states by their keys
    pairs : those of them that attention reads, and what it needs beside
    storage : type of keys and values
    limit : rows that a sequence may have
    """

    specs: Mapping[str, StateSpec]
    pairs: tuple[Pair, ...]
    storage: KVStorage
    limit: int

    @property
    def plain(self) -> tuple[str, ...]:
        """Keys of the states that no attention reads."""
        return plain_states(self.specs, self.pairs)


def plain_states(specs: Mapping[str, StateSpec], pairs: Iterable[Pair]) -> tuple[str, ...]:
    """Keys of the states that no attention reads, in the order of the plan."""
    read = {key for pair in pairs for key in (pair.keys, pair.values)}
    return tuple(key for key in specs if key not in read)


def bytes_per_token(plan: Plan, storage: KVStorage) -> int:
    """Bytes that a token takes in the caches of all attention layers, by the states of a plan's keys."""
    keys = [spec.shape for name, spec in plan.states.items() if spec.kind == "rows" and name.endswith("/k")]
    return sum(kv_heads * _head_bytes(head_dim, storage) for kv_heads, head_dim in keys)


def _head_bytes(head_dim: int, storage: KVStorage) -> int:
    numbers = head_dim + -(-head_dim // 16) * 16
    return numbers * STORAGE_BYTES[storage] + (8 if storage == "int8" else 0)


class _Half:
    """The keys, or the values, of one layer: codes ``[kv_heads, blocks, …]``; for int8, behind them the scales.

    Keys are ``[kv_heads, capacity / 16, head_dim, 16]``, values ``[kv_heads, capacity, head_dim rounded up to 16]``.
    """

    def __init__(self, pair: Pair, capacity: int, storage: KVStorage, *, keys: bool) -> None:
        self._storage: KVStorage = storage
        self._block = _BLOCK if keys else 1
        self._width = pair.head_dim
        inner = (pair.head_dim, _BLOCK) if keys else (-(-pair.head_dim // 16) * 16,)
        shape = (pair.kv_heads, capacity // self._block, *inner)
        size = math.prod(shape) * STORAGE_BYTES[storage]
        scales = 4 * pair.kv_heads * capacity if storage == "int8" else 0
        self.memory: NDArray[np.uint8] = np.zeros(size + scales, np.uint8)
        self._codes = self.memory[:size].view(storage).reshape(shape)
        self._scales = self.memory[size:].view(np.float32).reshape(pair.kv_heads, -1)

    def take(self, other: _Half, rows: int) -> None:
        """Copy what `other` holds of the first `rows`, a multiple of 16."""
        blocks = rows // self._block
        self._codes[:, :blocks] = other._codes[:, :blocks]
        if self._scales.size:
            self._scales[:, :rows] = other._scales[:, :rows]

    def read(self, rows: int) -> Held:
        """Return a copy of the first rows ``[rows, kv_heads, head_dim]``."""
        if self._block == 1:
            numbers = self._codes[:, :rows, : self._width].transpose(1, 0, 2).copy()
        else:
            panels = self._codes[:, : -(-rows // _BLOCK)].transpose(1, 3, 0, 2)
            numbers = panels.reshape(-1, *panels.shape[2:])[:rows].copy()
        return Coded(numbers, self._scales.T[:rows].copy()) if self._scales.size else numbers

    def write(self, value: Held) -> None:
        """Hold the rows ``[rows, kv_heads, head_dim]``, converted."""
        coded = as_codes(value) if self._storage == "int8" else None
        numbers = as_numbers(value, self._storage) if coded is None else coded.codes
        rows, *row = numbers.shape
        if coded is not None:
            self._scales[:, :rows] = coded.scales.T
        if self._block == 1:
            self._codes[:, :rows, : self._width] = numbers.transpose(1, 0, 2)
            return
        blocks = -(-rows // _BLOCK)
        panels = np.zeros((blocks * _BLOCK, *row), numbers.dtype)
        panels[:rows] = numbers
        self._codes[:, :blocks] = panels.reshape(blocks, _BLOCK, *row).transpose(2, 0, 3, 1)


class StateMemory:
    """Memory of all states of a sequence: what attention reads as its kernels lay it out, all else row by row.

    Capacity doubles when it is exceeded, up to the layout's limit.

    Attributes
    ----------
    capacity : rows that fit without growing
    table : address of the words (keys, values, capacity) of each pair, which steps read; then of (value, 0, capacity)
        of each other state
    plain : key → value of a fixed state, or ``[capacity, …]`` of rows that are no pair's
    """

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        self.capacity = 0
        self.plain: dict[str, NDArray[Any]] = {}
        self._halves: list[tuple[_Half, _Half]] = []
        self._table = np.zeros(0, np.int64)
        self.table = 0
        for key in layout.plain:
            spec = layout.specs[key]
            self.plain[key] = np.zeros(spec.shape if spec.kind == "fixed" else (0, *spec.shape), spec.dtype)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` rows, keeping what is held."""
        if rows <= self.capacity:
            return
        limit = -(-self.layout.limit // _BLOCK) * _BLOCK
        wanted = max(_FIRST, 2 * self.capacity, -(-rows // _BLOCK) * _BLOCK)
        self._resize(max(min(wanted, limit), -(-rows // _BLOCK) * _BLOCK), self, self.capacity)

    def copy(self, rows: int) -> StateMemory:
        """Independent memory that holds the first `rows` rows."""
        other = StateMemory(self.layout)
        other._resize(self.capacity, self, rows)
        return other

    def clear(self) -> None:
        """Begin anew. Rows are never read before they are written, fixed states are zeros again."""
        for key, value in self.plain.items():
            if self.layout.specs[key].kind == "fixed":
                value[...] = 0

    def read(self, key: str, rows: int) -> Held:
        """Return a copy of what a state holds."""
        if key not in self.plain:
            return self._half(key).read(rows)
        return self.plain[key][: None if self.layout.specs[key].kind == "fixed" else rows].copy()

    def write(self, key: str, value: Held) -> None:
        """Replace what a state holds; there is room for it."""
        if key not in self.plain:
            self._half(key).write(value)
        else:
            numbers = as_numbers(value, self.plain[key].dtype)
            self.plain[key][: len(numbers)] = numbers

    def _half(self, key: str) -> _Half:
        for pair, halves in zip(self.layout.pairs, self._halves, strict=True):
            if key in (pair.keys, pair.values):
                return halves[key == pair.values]
        raise KeyError(key)

    def _resize(self, capacity: int, old: StateMemory, rows: int) -> None:
        """Make memory for `capacity` rows and copy the first `rows` of `old`, which may be this one."""
        held, before = -(-rows // _BLOCK) * _BLOCK, old._halves
        self._halves = []
        for i, pair in enumerate(self.layout.pairs):
            keys, values = (_Half(pair, capacity, self.layout.storage, keys=half) for half in (True, False))
            if held and pair.keys is not None:
                keys.take(before[i][0], held)
                values.take(before[i][1], held)
            self._halves.append((keys, values))
        for key, value in old.plain.items():
            if self.layout.specs[key].kind == "fixed":
                self.plain[key] = value.copy()
            else:
                self.plain[key] = np.zeros((capacity, *value.shape[1:]), value.dtype)
                self.plain[key][:rows] = value[:rows]
        self.capacity = capacity
        words = [(address_of(keys.memory), address_of(values.memory), capacity) for keys, values in self._halves]
        words += [(address_of(self.plain[key]), 0, capacity) for key in self.layout.plain]
        self._table = np.array(words or [(0, 0, 0)], np.int64)
        self.table = address_of(self._table)


class CpuState:
    """Position and states of one sequence."""

    def __init__(self, memory: StateMemory, position: int = 0, reach: int = 0) -> None:
        self.memory = memory
        self._position = position
        self._changes = 0
        self._reach = reach

    @property
    def position(self) -> int:
        """Tokens held so far."""
        return self._position

    @property
    def version(self) -> tuple[int, int]:
        """Another one once rows were added, or the state was changed."""
        return self._position, self._changes

    @property
    def forgets(self) -> bool:
        """Whether there are places to which only a copy leads back, see `State.forgets`."""
        return has_fixed(self.memory.layout.specs)

    @property
    def reach(self) -> int:
        """First position beyond 0 to which `trim` goes back."""
        return self._position if self.forgets else self._reach

    def advance(self, tokens: int) -> None:
        """Count `tokens` more tokens as held."""
        self._position += tokens

    def reset(self) -> None:
        """Forget everything; the memory is kept for reuse."""
        self._position = self._reach = 0
        self._changes += 1
        self.memory.clear()

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on; see `State.trim`."""
        check_trim(self._position, position, self.memory.layout.specs, self.reach)
        if position == 0:
            self._reach = 0
            self.memory.clear()
        self._changes += 1
        self._position = position

    def fork(self) -> CpuState:
        """Copy: both continue independently. Only what is held is copied."""
        return CpuState(self.memory.copy(self._position), self._position, self._reach)

    def save(self) -> bytes:
        """Return the state as bytes, see `volumetric.runtime.state_file`."""
        return save_state(self, self.memory.layout.specs)

    def read(self, key: str) -> Held:
        """Return what the state `key` holds."""
        return self.memory.read(key, self._position)

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states."""
        self.memory.reserve(position)
        for key, value in values.items():
            fixed = self.memory.layout.specs[key].kind == "fixed"
            self.memory.write(key, value if fixed else after_zeros(value, position))
        self._changes += 1
        self._position = position
        self._reach = reach_of(values, self.memory.layout.specs, position)
