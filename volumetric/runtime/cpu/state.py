"""The recurrent state of one sequence: its position and key/value caches, which grow as tokens arrive."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from volumetric.runtime.cpu.arena import address_of
from volumetric.runtime.plan import KVSpec
from volumetric.runtime.state import check_trim

_FIRST = 256  # tokens of the first allocation


class KVCaches:
    """Keys and values of all attention layers, as the attention kernels lay them out.

    Keys are ``[kv_heads, capacity / 16, head_dim, 16]``, values ``[kv_heads, capacity, head_dim rounded up to 16]``.
    Capacity doubles when it is exceeded, up to `limit`.

    Attributes
    ----------
    capacity : tokens that fit without growing
    table : address of the words (keys, values, capacity) that steps read
    """

    def __init__(self, specs: Mapping[str, KVSpec], dtype: type[np.floating], limit: int) -> None:
        self._specs = tuple(specs.values())
        self._dtype = dtype
        self._limit = -(-limit // 16) * 16
        self.capacity = 0
        self._keys: list[NDArray[np.floating]] = []
        self._values: list[NDArray[np.floating]] = []
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
        other = KVCaches({str(i): spec for i, spec in enumerate(self._specs)}, self._dtype, self._limit)
        other._keys, other._values, other.capacity = self._keys, self._values, self.capacity
        other._resize(self.capacity, held=tokens)
        return other

    def _resize(self, capacity: int, *, held: int | None = None) -> None:
        panels = -(-(self.capacity if held is None else held) // 16)
        keys, values = [], []
        for i, spec in enumerate(self._specs):
            padded = -(-spec.head_dim // 16) * 16
            keys.append(np.zeros((spec.kv_heads, capacity // 16, spec.head_dim, 16), self._dtype))
            values.append(np.zeros((spec.kv_heads, capacity, padded), self._dtype))
            if panels:
                keys[i][:, :panels] = self._keys[i][:, :panels]
                values[i][:, : panels * 16] = self._values[i][:, : panels * 16]
        self._keys, self._values, self.capacity = keys, values, capacity
        rows = [(address_of(k), address_of(v), capacity) for k, v in zip(keys, values, strict=True)]
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
