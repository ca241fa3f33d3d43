"""The recurrent state of one sequence: its position and key/value caches, which grow as tokens arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from volumetric.kernels.cpu.append import STORAGE_BYTES
from volumetric.layers import StateSpec
from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_trim

_FIRST = 256  # tokens of the first allocation


KVStorage = Literal["float32", "float16", "int8"]


def bytes_per_token(plan: Plan, storage: KVStorage) -> int:
    """Bytes that a token takes in the caches of all attention layers."""
    rows = [plan.states[step.states["k"]].shape for step in plan.steps if "k" in step.states]
    return sum(kv_heads * _head_bytes(head_dim, storage) for kv_heads, head_dim in rows)


def _head_bytes(head_dim: int, storage: KVStorage) -> int:
    numbers = head_dim + -(-head_dim // 16) * 16
    return numbers * STORAGE_BYTES[storage] + (8 if storage == "int8" else 0)


class _Half:
    """The keys, or the values, of one layer: codes ``[kv_heads, blocks, …]``; for int8, behind them the scales.

    Parameters
    ----------
    shape : of the codes; the first two axes are heads and blocks of positions
    block : positions in a block
    """

    def __init__(self, shape: tuple[int, ...], block: int, storage: KVStorage) -> None:
        size = math.prod(shape) * STORAGE_BYTES[storage]
        scales = 4 * shape[0] * shape[1] * block if storage == "int8" else 0
        self.memory: NDArray[np.uint8] = np.zeros(size + scales, np.uint8)
        self._block = block
        self._codes = self.memory[:size].view(storage).reshape(shape)
        self._scales = self.memory[size:].view(np.float32).reshape(shape[0], -1)

    def take(self, other: _Half, positions: int) -> None:
        """Copy what `other` holds of the first `positions`, a multiple of 16."""
        blocks = positions // self._block
        self._codes[:, :blocks] = other._codes[:, :blocks]
        if self._scales.size:
            self._scales[:, :positions] = other._scales[:, :positions]


class KVCaches:
    """Keys and values of all attention layers, as the attention kernels lay them out.

    Keys are ``[kv_heads, capacity / 16, head_dim, 16]``, values ``[kv_heads, capacity, head_dim rounded up to 16]``;
    int8 ones are followed by float32 scales ``[kv_heads, capacity]``. Capacity doubles when it is exceeded, up to
    `limit`.

    Attributes
    ----------
    capacity : tokens that fit without growing
    table : address of the words (keys, values, capacity) that steps read
    """

    def __init__(self, specs: Mapping[str, StateSpec], storage: KVStorage, limit: int) -> None:
        self._specs = tuple(specs.values())
        self._storage: KVStorage = storage
        self._limit = -(-limit // 16) * 16
        self.capacity = 0
        self._halves: list[tuple[_Half, _Half]] = []
        self._table = np.zeros(0, np.int64)
        self.table = 0

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` tokens, keeping what is held."""
        if tokens <= self.capacity:
            return
        wanted = max(_FIRST, 2 * self.capacity, -(-tokens // 16) * 16)
        self._resize(max(min(wanted, self._limit), -(-tokens // 16) * 16))

    def copy(self, tokens: int) -> KVCaches:
        """Independent caches that hold the first `tokens` tokens."""
        other = KVCaches({str(i): spec for i, spec in enumerate(self._specs)}, self._storage, self._limit)
        other._halves, other.capacity = self._halves, self.capacity
        other._resize(self.capacity, held=tokens)
        return other

    def _resize(self, capacity: int, *, held: int | None = None) -> None:
        positions = -(-(self.capacity if held is None else held) // 16) * 16
        before, self._halves = self._halves, []
        for i, spec in enumerate(self._specs):
            kv_heads, head_dim = spec.shape
            keys = _Half((kv_heads, capacity // 16, head_dim, 16), 16, self._storage)
            values = _Half((kv_heads, capacity, -(-head_dim // 16) * 16), 1, self._storage)
            if positions:
                keys.take(before[i][0], positions)
                values.take(before[i][1], positions)
            self._halves.append((keys, values))
        self.capacity = capacity
        rows = [(address_of(keys.memory), address_of(values.memory), capacity) for keys, values in self._halves]
        self._table = np.array(rows or [(0, 0, 0)], np.int64)
        self.table = address_of(self._table)


class CpuState:
    """Position and caches of one sequence."""

    def __init__(self, caches: KVCaches, position: int = 0) -> None:
        self.caches = caches
        self._position = position

    @property
    def position(self) -> int:
        """Tokens held so far."""
        return self._position

    def advance(self, tokens: int) -> None:
        """Count `tokens` more tokens as held."""
        self._position += tokens

    def reset(self) -> None:
        """Forget everything; the memory is kept for reuse."""
        self._position = 0

    def trim(self, position: int) -> None:
        """Forget all tokens from `position` on. Raises `GenerationError` if it is beyond the end."""
        check_trim(self._position, position)
        self._position = position

    def fork(self) -> CpuState:
        """Copy: both continue independently."""
        return CpuState(self.caches.copy(self._position), self._position)
