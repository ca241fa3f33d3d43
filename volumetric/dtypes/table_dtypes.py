"""Numeric types defined by a table: each code has its own number. Packages add types this way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError
from volumetric.dtypes.blocks import find_format
from volumetric.dtypes.registry import DType, add_dtype

MOST_BITS: Final = 16
"""Maximum bits of a code: beyond this, a table is larger than the tensors it is for."""


def register_dtype(name: str, values: ArrayLike, *, short: str = "", aliases: Sequence[str] = ()) -> DType:
    """Register a table of numbers as a numeric type; devices compute with the decoded values.

    A number is stored as the code of the nearest number in the table; a tie takes the even code.
    If there are scales, the largest magnitude of a group maps to that of the table.

    Parameters
    ----------
    name : canonical spelling
    values : the number of each code, finite in float32: 2, 4, … 65,536 of them, for codes of 1 … 16 bits
    short : spelling for tables and command lines; default: the name
    aliases : further spellings

    Raises
    ------
    DTypeError : the table is invalid, or a type or block format already has the name

    Examples
    --------
    >>> register_dtype("signed_powers", [0, 1, 2, 4, -1, -2, -4, -8]).bits
    3
    """
    table = np.asarray(values, np.float32)
    bits = table.size.bit_length() - 1
    if table.ndim != 1 or not 1 <= bits <= MOST_BITS or table.size != 1 << bits or not np.isfinite(table).all():
        raise DTypeError(
            f"{name}: a type needs 2, 4, 8, … or {1 << MOST_BITS} finite numbers, got shape {table.shape}",
            hint="pass one for each code; unused codes may repeat a number",
        )
    if not table.any():
        raise DTypeError(f"{name}: all numbers of the table are 0")
    for text in (name, short, *aliases):
        if text and find_format(text) is not None:
            raise DTypeError(f"block format {text!r} already exists", hint="choose another name")
    host = np.dtype(np.uint8 if bits <= 8 else np.uint16)
    dtype = DType(
        name=name,
        short=short or name,
        bits=bits,
        kind="table",
        host=host,
        aliases=tuple(aliases),
        values=tuple(table.tolist()),
    )
    return add_dtype(dtype)


@cache
def numbers_of(dtype: DType) -> F32Array:
    """Return the table of a type, float32."""
    table = np.array(dtype.values, np.float32)
    table.flags.writeable = False
    return table


def nearest_codes(x: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Return the codes of the table's numbers nearest to finite numbers."""
    codes, bounds = _sorted_codes(dtype)
    return codes[np.searchsorted(bounds, x.astype(np.float64))]


@cache
def _sorted_codes(dtype: DType) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Codes sorted by number (the first of equal numbers), and the upper bounds up to which each is nearest."""
    numbers, codes = np.unique(numbers_of(dtype).astype(np.float64), return_index=True)
    bounds = (numbers[:-1] + numbers[1:]) / 2
    to_next = codes[:-1] % 2 > codes[1:] % 2
    return codes.astype(dtype.host), np.where(to_next, np.nextafter(bounds, -np.inf), bounds)
