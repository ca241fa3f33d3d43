"""Values of a state as a device returns them: numbers, or int8 codes with scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.layers import StateSpec


@dataclass(frozen=True, slots=True)
class QuantisedKv:
    """int8 codes ``[rows, heads, width]`` whose values are ``code · scale``, with float32 scales ``[rows, heads]``."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]

    def values(self) -> NDArray[np.float32]:
        """Return the dequantised values."""
        return self.codes * self.scales[..., None]


KvValue: TypeAlias = "NDArray[Any] | QuantisedKv"


def oldest_restorable(values: Mapping[str, KvValue], specs: Mapping[str, StateSpec], position: int) -> int:
    """Return the oldest position above 0 for which states with these `values` have all rows that the next row reads."""
    firsts = {key: position - kv_row_count(value) for key, value in values.items() if specs[key].kind == "rows"}
    return max((first + (specs[key].window or 1) - 1 for key, first in firsts.items() if first), default=0)


def pad_rows_before(value: KvValue, rows: int) -> KvValue:
    """Return stored rows padded to `rows` rows, with zeros in front for rows that are never read again."""
    before = rows - kv_row_count(value)
    if not before:
        return value
    if isinstance(value, QuantisedKv):
        return QuantisedKv(_prepend_zeros(value.codes, before), _prepend_zeros(value.scales, before))
    return _prepend_zeros(value, before)


def _prepend_zeros(array: NDArray[Any], rows: int) -> NDArray[Any]:
    return np.concatenate([np.zeros((rows, *array.shape[1:]), array.dtype), array])


def last_rows(value: KvValue, rows: int) -> KvValue:
    """Return the last stored rows, at most `rows`."""
    start = max(0, kv_row_count(value) - rows)
    return QuantisedKv(value.codes[start:], value.scales[start:]) if isinstance(value, QuantisedKv) else value[start:]


def kv_row_count(value: KvValue) -> int:
    """Return the number of stored rows."""
    return len(value.codes if isinstance(value, QuantisedKv) else value)


def as_numbers(value: KvValue, dtype: np.dtype | str) -> NDArray[Any]:
    """Return stored values, dequantised if they are codes, in another dtype; values beyond float16 become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(value.values() if isinstance(value, QuantisedKv) else value).astype(dtype)


def as_codes(value: KvValue) -> QuantisedKv:
    """Return stored values as int8 codes, rounded like the CPU's attention: to 1/127 of a head's largest magnitude.

    The scale of a head with a non-finite value is NaN.
    """
    if isinstance(value, QuantisedKv):
        return value
    values = value.astype(np.float32)
    top = np.abs(values).max(-1, initial=0)
    scales = np.where(np.isfinite(top), top / np.float32(127), np.float32(np.nan))
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > np.float32(1e-30))
    with np.errstate(invalid="ignore"):
        codes = np.rint(np.nan_to_num(values * inverse[..., None], posinf=0, neginf=0))
    return QuantisedKv(np.clip(codes, -127, 127).astype(np.int8), scales)
