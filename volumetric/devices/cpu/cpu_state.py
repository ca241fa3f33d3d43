"""The state of one sequence on the CPU: its position, and memory for the declared states that grows with the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of, off_heap_zeros
from volumetric.devices.cpu.kernels.rope_kv_append import STORAGE_BYTES
from volumetric.devices.cpu.kv_cache import KvCache, KvPair, KVStorage, grown_capacity
from volumetric.layers import StateSpec
from volumetric.run.kv_value import KvValue, as_numbers
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import SequenceState


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """The states of a sequence, and their storage.

    Attributes
    ----------
    specs : the plan's states by their keys
    pairs : those read by attention, with further facts that it needs
    storage : type of keys and values
    limit : maximum rows of a sequence
    """

    specs: Mapping[str, StateSpec]
    pairs: tuple[KvPair, ...]
    storage: KVStorage
    limit: int

    @property
    def plain(self) -> tuple[str, ...]:
        """Keys of the states that no attention reads."""
        return plain_states(self.specs, self.pairs)

    def window(self, pair: KvPair) -> int | None:
        """Number of a pair's last rows that are read again; None: all."""
        return None if pair.keys is None else self.specs[pair.keys].window


def plain_states(specs: Mapping[str, StateSpec], pairs: Iterable[KvPair]) -> tuple[str, ...]:
    """Keys of the states that no attention reads, in the order of the plan."""
    read = {key for pair in pairs for key in (pair.keys, pair.values)}
    return tuple(key for key in specs if key not in read)


def bytes_per_token(plan: Plan, storage: KVStorage) -> int:
    """Bytes per token in the caches of all attention layers, from the states of a plan."""
    keys = [spec.shape for name, spec in plan.states.items() if spec.kind == "rows" and name.endswith("/k")]
    return sum(kv_heads * _head_bytes(head_dim, storage) for kv_heads, head_dim in keys)


def _head_bytes(head_dim: int, storage: KVStorage) -> int:
    numbers = head_dim + -(-head_dim // 16) * 16
    return numbers * STORAGE_BYTES[storage] + (8 if storage == "int8" else 0)


class StateMemory:
    """Memory of all states of a sequence: attention states in the layout of its kernels, all others row by row.

    Attributes
    ----------
    table : address of the words (keys, values, capacity, first) of each cache, which steps read; then of
        (value, 0, 0, 0) of each other state
    caches : one for each pair of the layout
    plain : key → value of a fixed state, or ``[capacity, …]`` of rows outside of pairs
    """

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        self.caches: list[KvCache] = [
            KvCache(pair, layout.storage, window=layout.window(pair), limit=layout.limit) for pair in layout.pairs
        ]
        self.plain: dict[str, NDArray[Any]] = {}
        for key in layout.plain:
            spec = layout.specs[key]
            self.plain[key] = np.zeros(spec.shape if spec.kind == "fixed" else (0, *spec.shape), spec.dtype)
        self._write_table()

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        return sum(cache.nbytes for cache in self.caches) + sum(value.nbytes for value in self.plain.values())

    @property
    def has_windows(self) -> bool:
        """Whether rows are dropped outside of windows."""
        return any(cache.window is not None for cache in self.caches)

    @property
    def oldest_restorable(self) -> int:
        """Oldest restorable position beyond 0."""
        return max((cache.oldest_restorable for cache in self.caches), default=0)

    def free_rows(self, position: int) -> int:
        """Number of rows that fit from `position` on without `reserve`."""
        return min(self._end - position, self._most)

    def visible_rows(self, position: int, rows: int) -> int:
        """Maximum number of rows that attention reads in a cache in a call of `rows` rows from `position` on."""
        if not self.caches:
            return 0
        return rows if self._first is None else rows + position - self._first

    def reserve(self, position: int, rows: int) -> None:
        """Make room for `rows` rows from `position` on, keeping the earlier rows that they read."""
        if rows <= self.free_rows(position):
            return
        blocks = _blocks(self.caches, [cache.capacity_for(position, rows) for cache in self.caches])
        moved = [cache.reserve(position, rows, block) for cache, block in zip(self.caches, blocks, strict=True)]
        for key in self._row_keys:
            value = self.plain[key]
            if position + rows > len(value):
                capacity = grown_capacity(len(value), position + rows, self.layout.limit)
                self.plain[key] = np.zeros((capacity, *value.shape[1:]), value.dtype)
                self.plain[key][: len(value)] = value
                moved.append(True)
        if any(moved):
            self._write_table()

    def copy(self, position: int, *, fit: bool = False) -> StateMemory:
        """Return independent memory with the same rows up to `position`; with `fit`, without room for more."""
        other = StateMemory(self.layout)
        capacities = [cache.capacity_of_copy(position, fit=fit) for cache in self.caches]
        blocks = _blocks(other.caches, capacities)
        other.caches = [
            cache.copy(position, capacity, block)
            for cache, capacity, block in zip(self.caches, capacities, blocks, strict=True)
        ]
        for key, value in self.plain.items():
            if self.layout.specs[key].kind == "fixed":
                other.plain[key] = value.copy()
            else:
                other.plain[key] = np.zeros((position, *value.shape[1:]) if fit else value.shape, value.dtype)
                other.plain[key][:position] = value[:position]
        other._write_table()
        return other

    def shrink_to_fit(self, position: int) -> None:
        """Free memory that `position` rows do not need."""
        fits = [cache.capacity_of_copy(position, fit=True) for cache in self.caches]
        spare = any(len(self.plain[key]) > position for key in self._row_keys)
        if spare or any(cache.capacity > fit for cache, fit in zip(self.caches, fits, strict=True)):
            fitting = self.copy(position, fit=True)
            self.caches = fitting.caches
            self.plain = fitting.plain
            self._write_table()

    def clear(self) -> None:
        """Reset to an empty sequence. Rows are never read before they are written; fixed states become zeros again."""
        for cache in self.caches:
            cache.clear()
        for key, value in self.plain.items():
            if self.layout.specs[key].kind == "fixed":
                value[...] = 0
        self._write_table()

    def fill(self, values: Mapping[str, KvValue], position: int) -> None:
        """Replace all states by those of a sequence of `position` rows."""
        self._end = -1  # not known until everything is restored
        for pair, cache in zip(self.layout.pairs, self.caches, strict=True):
            if pair.keys is not None and pair.values is not None:
                cache.fill(values[pair.keys], values[pair.values], position)
        self.reserve(position, 0)
        for key in self.plain:
            self.write(key, values[key])
        self._write_table()

    def read(self, key: str, position: int) -> KvValue:
        """Return a copy of the first `position` rows of a state."""
        if key not in self.plain:
            cache, keys = self._cache_of(key)
            return cache.read(position, keys=keys)
        return self.plain[key][: None if self.layout.specs[key].kind == "fixed" else position].copy()

    def write(self, key: str, value: KvValue) -> None:
        """Replace the contents of a state; it must have room."""
        if key not in self.plain:
            cache, keys = self._cache_of(key)
            cache.write(value, keys=keys)
        else:
            numbers = as_numbers(value, self.plain[key].dtype)
            self.plain[key][: len(numbers)] = numbers

    @property
    def _row_keys(self) -> list[str]:
        return [key for key in self.plain if self.layout.specs[key].kind == "rows"]

    def _cache_of(self, key: str) -> tuple[KvCache, bool]:
        for pair, cache in zip(self.layout.pairs, self.caches, strict=True):
            if key in (pair.keys, pair.values):
                return cache, key == pair.keys
        raise KeyError(key)

    def _write_table(self) -> None:
        """Write the words read by steps, and cache the facts about all caches together that calls need."""
        pairs = list(zip(self.layout.pairs, self.caches, strict=True))
        row_caches = [cache for pair, cache in pairs if pair.keys is not None]
        limit = self.layout.limit
        ends = [cache.first + cache.capacity for cache in row_caches] + [len(self.plain[key]) for key in self._row_keys]
        self._end = min(ends, default=limit)
        self._most = min((cache.capacity for pair, cache in pairs if pair.keys is None), default=limit)
        self._first = min((cache.first for cache in row_caches), default=None)
        words = [cache.words for cache in self.caches]
        words += [(address_of(value), 0, 0, 0) for value in self.plain.values()]
        self._table = np.array(words or [(0, 0, 0, 0)], np.int64)
        self.table: int = address_of(self._table)


def _blocks(caches: Sequence[KvCache], capacities: Sequence[int]) -> list[NDArray[np.uint8] | None]:
    """Return memory for the caches whose capacity changes, one block for all caches that grow together.

    Separate blocks per layer would be on the heap, and fragment it when many states come and go.
    """
    sizes = [
        cache.bytes_of(capacity) if capacity != cache.capacity else 0
        for cache, capacity in zip(caches, capacities, strict=True)
    ]
    blocks: list[NDArray[np.uint8] | None] = [None] * len(caches)
    for growth in {cache.growth for cache in caches}:
        batch_invariant = [i for i, cache in enumerate(caches) if cache.growth == growth and sizes[i]]
        block, start = off_heap_zeros(sum(sizes[i] for i in batch_invariant)), 0
        for i in batch_invariant:
            blocks[i] = block[start : start + sizes[i]]
            start += sizes[i]
    return blocks


class CpuState(SequenceState):
    """Position and states of one sequence."""

    def __init__(self, memory: StateMemory) -> None:
        super().__init__(memory.layout.specs)
        self.memory = memory
        self._changes = 0

    @property
    def version(self) -> tuple[int, int]:
        """Changes when rows are added or the state is modified."""
        return self.position, self._changes

    def shrink_to_fit(self) -> None:
        """Free unused memory."""
        self.memory.shrink_to_fit(self.position)

    def read(self, key: str) -> KvValue:
        return self.memory.read(key, self.position)

    def _write(self, values: Mapping[str, KvValue], position: int) -> None:
        self.memory.fill(values, position)
        self._changes += 1

    def _drop_rows(self, position: int) -> None:
        """Drop rows; the memory is kept for reuse."""
        if position == 0:
            self.memory.clear()
        self._changes += 1

    def _copy(self, position: int) -> CpuState:
        memory = self.memory.copy(position)
        if position == 0:
            memory.clear()
        return CpuState(memory)

    @property
    def _frees_windows(self) -> bool:
        return self.memory.has_windows

    def _oldest_in_memory(self) -> int:
        return self.memory.oldest_restorable
