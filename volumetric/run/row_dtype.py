"""Numbers of callers in the type that an input reads, if none of them changes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.errors import ShapeError

_FLOATS = "fbV"  # truth values count as numbers; bfloat16 has kind V


def as_input_dtype(x: ArrayLike, dtype: Literal["int32", "float32"] | str, who: str) -> NDArray[Any]:
    """Return numbers of any type as an array for an input of `dtype`.

    Floats are rounded to float32. Whole numbers become float32 if it holds them exactly, and floats become ids if they
    are whole. The ids stay int64 or alike: whether they are in range is for the caller to check.

    Raises
    ------
    ShapeError : `x` is ragged or no numbers, or a number would change
    """
    try:
        x = np.asarray(x)
    except ValueError:
        raise ShapeError(f"{who}: the rows have different lengths", hint="pass sequences of one length") from None
    if dtype == "int32":
        return _ids(x, who)
    if x.dtype.kind in "iu":
        converted = x.astype(dtype)
        if x.size and (converted != x).any():
            raise ShapeError(
                f"{who} reads {dtype}, which cannot hold {x[converted != x].flat[0]} of {x.dtype}",
                hint="scale the numbers, and pass them as floats",
            )
        return converted
    if x.dtype.kind not in _FLOATS:
        hint = "pass real and imaginary parts as separate features" if x.dtype.kind == "c" else "pass numbers"
        raise ShapeError(f"{who} reads {dtype}, got {x.dtype}", hint=hint)
    return x


def _ids(x: NDArray[Any], who: str) -> NDArray[Any]:
    """Return whole numbers as integers."""
    if x.dtype.kind in "iu":
        return x
    if x.dtype.kind == "f":
        whole = np.isfinite(x) & (np.trunc(x) == x) & (np.abs(x) < 2.0**53)
        if whole.all():
            return x.astype(np.int64)
        raise ShapeError(
            f"{who} reads int32, got {x.dtype} with {x[~whole].flat[0]}", hint="ids are integers: x.astype(int)"
        )
    raise ShapeError(
        f"{who} reads int32, got {x.dtype}", hint="ids are integers: x.astype(int)" if x.dtype.kind == "b" else None
    )
