"""Packed tensors with changed scales and the same codes: rows multiplied, or scales repeated for narrower groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.dtypes.codec import decode, encode
from volumetric.dtypes.packed import Packed
from volumetric.dtypes.registry import parse_dtype
from volumetric.dtypes.scheme import Scheme


def scaled_rows(packed: Packed, factors: Sequence[tuple[int, float]]) -> Packed:
    """Return a tensor in the same scheme with each row multiplied by a factor.

    Scales and offsets are multiplied in float32 and rounded to their type; so are numbers without scales. Scales of
    MXFP4 are powers of two: for other factors its numbers are re-encoded.

    Parameters
    ----------
    factors : (number of entries of the first axis, their factor), in order

    Raises
    ------
    ShapeError
        The entries do not add up to the first axis of the tensor.
    DTypeError
        A number exceeds the range of the type.
    """
    length, total = packed.shape[0] if packed.shape else 1, sum(count for count, _ in factors)
    if total != length:
        raise ShapeError(f"factors for {total} rows do not fit {length} rows")
    each = np.concatenate([np.full(count, factor, np.float32) for count, factor in factors])
    if packed.scales is None and (packed.scheme.blocks is None or not _can_scale_steps(packed, each)):
        axes = (length, *[1] * (len(packed.shape) - 1))
        return encode(decode(packed) * each.reshape(axes), packed.scheme)
    by_row = np.repeat(each, packed.rows // max(length, 1))[:, None]
    if packed.scheme.blocks is not None:
        return _with_steps(packed, by_row)
    offsets = None if packed.offsets is None else _multiply_scales(packed.offsets, by_row)
    assert packed.scales is not None
    return replace(packed, scales=_multiply_scales(packed.scales, by_row), offsets=offsets)


def _multiply_scales(numbers: NDArray[Any], factors: Array) -> NDArray[Any]:
    """Products in float32, cast to the type of the numbers."""
    with np.errstate(over="ignore", invalid="ignore"):  # scales read from a file may be anything
        return (numbers.astype(np.float32) * factors).astype(numbers.dtype)


def _can_scale_steps(packed: Packed, factors: Array) -> bool:
    """Whether steps of blocks can take the factors: float16 takes all, rounded; powers of two only such."""
    powers = packed.scheme.blocks is not None and packed.scheme.blocks.name == "mxfp4"
    return not powers or bool((np.frexp(factors)[0] == 0.5).all())


def _with_steps(packed: Packed, factors: Array) -> Packed:
    """Blocks of rows with other steps and floors."""
    blocks = packed.scheme.blocks
    assert blocks is not None
    each = np.repeat(factors[:, 0], blocks.blocks(packed.k))
    fields = blocks.split(packed.raw_blocks())
    floor = None if fields.floor is None else _multiply_scales(fields.floor, each)
    joined = blocks.join(fields._replace(step=_multiply_scales(fields.step, each), floor=floor))
    payload = packed.payload.copy()
    payload.view(np.uint8)[:, : blocks.row_bytes(packed.k)] = joined.reshape(packed.rows, -1)
    return replace(packed, payload=payload)


NARROW = 32
"""Numbers per scale in all native schemes."""


def narrower_scheme(scheme: Scheme, native: Container[str]) -> Scheme | None:
    """Return the scheme with groups of 32 that holds the same numbers, if it is in `native`; else None.

    Scales of 16 bits may become float32, without loss.

    Examples
    --------
    >>> narrower_scheme(Scheme.parse("int4:g128"), {"int4:g32"})
    Scheme.parse('int4:g32')
    """
    if scheme.group is None or scheme.group % NARROW or str(scheme) in native:
        return None
    narrow = dataclasses.replace(scheme, group=NARROW)
    wide = dataclasses.replace(narrow, scale_dtype=parse_dtype("float32"))
    return next((each for each in (narrow, wide) if str(each) in native), None)


def repeat_scales(packed: Packed, scheme: Scheme) -> Packed:
    """Return the same codes with scales and offsets repeated for the groups of 32 of `scheme`."""
    groups = np.arange(scheme.groups_per_row(packed.k)) * NARROW // (packed.scheme.group or packed.k or 1)
    host = None if scheme.scale_dtype is None else scheme.scale_dtype.host
    return Packed(
        scheme=scheme,
        shape=packed.shape,
        payload=packed.payload,
        scales=None if packed.scales is None else packed.scales[:, groups].astype(host),
        offsets=None if packed.offsets is None else packed.offsets[:, groups].astype(host),
    )
