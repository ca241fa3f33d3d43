"""Encode numbers into packed form and decode them: the reference that every kernel must match.

Rounding is to nearest even and saturating, except for int8/4/2 and uint8/4/2 with scales, which follow GGUF's rules
(`volumetric.dtypes.quantize`). Work is done in chunks of rows, so temporaries stay small compared to the tensor.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import DTypeError
from volumetric.dtypes.bits import pack_codes, unpack_codes
from volumetric.dtypes.blocks.format import fit_rows
from volumetric.dtypes.packed import Packed
from volumetric.dtypes.quantize import QuantizedGroups, plain_codes, quantize
from volumetric.dtypes.registry import DType, parse_dtype
from volumetric.dtypes.rounding import cast_saturating
from volumetric.dtypes.scheme import Scheme
from volumetric.dtypes.table_dtypes import numbers_of

_CHUNK = 1 << 16  # elements; the float32 temporaries of a chunk then stay in a 1 MB second-level cache


def encode(x: Array, scheme: Scheme | str, *, importance: Array | None = None) -> Packed:
    """Return `x` packed by `scheme`. The result shares no memory with `x`.

    Parameters
    ----------
    x : floating-point array of any shape, groups and rows running along the last axis
    scheme : Scheme or its text form, ``"int4:g32"``
    importance : weight of the squared error of each column, ``[k]``, none negative: usually the mean square
        of the column's activations. Block formats search scales that suit it; other schemes ignore it

    Raises
    ------
    DTypeError
        `x` is not floating-point, or holds NaN or an infinity that the type cannot represent (the message names the
        first one). float64, float32, float16, bfloat16 and float8_e5m2 hold both; float8_e4m3fn holds NaN.
    """
    scheme = Scheme.parse(scheme)
    x = np.asarray(x)
    if not parse_dtype(x.dtype).is_float:
        raise DTypeError(
            f"encode takes floating-point arrays, got {x.dtype}", hint="use Packed.from_array for integers"
        )
    shape = x.shape
    k, rows = (shape[-1] if shape else 1), prod(shape[:-1])
    weights = _importance_of(importance, k)
    packed = _empty(scheme, shape, rows, k)
    matrix = x.reshape(rows, k)
    with np.errstate(all="ignore"):  # every case is handled here; floating-point warnings add nothing
        for part in _chunks(rows, k):
            chunk = _computing_dtype(matrix[part], scheme)
            _refuse_odd(chunk, scheme, shape, part.start)
            _encode_chunk(chunk, packed, part, weights)
    return packed


def decode(packed: Packed, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return the values of `packed` in its logical shape, as a new array.

    Parameters
    ----------
    packed : Packed
    dtype : float32, float64, float16 or ``ml_dtypes.bfloat16``
        float64 holds the values of all symmetric types with at most 32 bits exactly; those of block formats are
        float32 numbers. Conversion saturates.
    """
    out = np.empty((packed.rows, packed.k), np.dtype(dtype))
    if not parse_dtype(out.dtype).is_float:
        raise DTypeError(f"cannot decode to {out.dtype}", hint="use a floating-point dtype")
    with np.errstate(all="ignore"):  # scales read from a file may be NaN or infinite
        for part in _chunks(packed.rows, packed.k):
            _decode_chunk(packed, part, out[part])
    return out.reshape(packed.shape)


def recode(packed: Packed, scheme: Scheme | str) -> Packed:
    """Return the float32 values of `packed` in another scheme, as ``encode(decode(packed), scheme)`` does.

    It works in chunks of rows: only the result has the size of the tensor. Raises as `encode`.
    """
    scheme = Scheme.parse(scheme)
    shape, rows, k = packed.shape, packed.rows, packed.k
    out = _empty(scheme, shape, rows, k)
    with np.errstate(all="ignore"):
        for part in _chunks(rows, k):
            chunk = np.empty((part.stop - part.start, k), np.float32)
            _decode_chunk(packed, part, chunk)
            _refuse_odd(chunk, scheme, shape, part.start)
            _encode_chunk(chunk, out, part, None)
    return out


def decode_rows(packed: Packed, rows: NDArray[np.integer[Any]]) -> F32Array:
    """Return the rows with these indices as float32 ``[len(rows), k]``: an embedding lookup.

    Raises
    ------
    ShapeError
        An index is outside of the rows.
    """
    return decode(packed.take_rows(rows))


def _chunks(rows: int, k: int) -> list[slice]:
    step = max(1, _CHUNK // max(k, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows if k else 0, step)]


def _empty(scheme: Scheme, shape: tuple[int, ...], rows: int, k: int) -> Packed:
    def scales() -> NDArray[Any]:
        return np.zeros((rows, scheme.groups_per_row(k)), scheme.scale_dtype.host if scheme.scale_dtype else None)

    return Packed(
        scheme=scheme,
        shape=shape,
        payload=np.zeros((rows, scheme.words_per_row(k)), np.uint32),
        scales=scales() if scheme.scale_dtype else None,
        offsets=scales() if scheme.has_offset else None,
    )


def _computing_dtype(chunk: NDArray[Any], scheme: Scheme) -> NDArray[Any]:
    """The dtype to calculate in: float64 and floats stored unchanged keep theirs, all others use float32."""
    if chunk.dtype == np.float64 or (chunk.dtype == scheme.dtype.host and scheme.group is None):
        return chunk
    return cast_saturating(chunk, np.dtype(np.float32))


def _refuse_odd(chunk: NDArray[Any], scheme: Scheme, shape: tuple[int, ...], first_row: int) -> None:
    """Raise `DTypeError` at the first NaN or infinity that the type cannot hold."""
    dtype = scheme.dtype
    if dtype.is_float and (dtype.bits >= 16 or dtype.name == "float8_e5m2"):
        return
    if np.isfinite(chunk.max()) and np.isfinite(chunk.min()):
        return
    bad = np.isinf(chunk) if dtype.name == "float8_e4m3fn" else ~np.isfinite(chunk)
    if not bad.any():
        return
    flat = int(bad.argmax())
    index = np.unravel_index(first_row * chunk.shape[1] + flat, shape) if shape else ()
    where = tuple(int(axis) for axis in index)
    raise DTypeError(
        f"{dtype} cannot hold the {chunk.reshape(-1)[flat]} at index {where} of shape {shape}",
        hint="the checkpoint is damaged or training diverged; bfloat16 and float16 keep such values",
    )


def _importance_of(importance: Array | None, k: int) -> F32Array | None:
    """`importance` validated, as float32, with a mean of 1; None if not passed or all 0."""
    if importance is None:
        return None
    weights = np.asarray(importance, np.float64)
    if weights.shape != (k,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise DTypeError(f"importance must be {k} finite numbers ≥ 0, got shape {weights.shape}", hint="one per column")
    return (weights / weights.mean()).astype(np.float32) if weights.any() else None


def _encode_blocks(chunk: F32Array, packed: Packed, part: slice, weights: F32Array | None) -> None:
    blocks = packed.scheme.blocks
    assert blocks is not None
    raw = blocks.join(fit_rows(blocks, chunk, weights)).reshape(len(chunk), -1)
    packed.payload[part].view(np.uint8)[:, : raw.shape[1]] = raw


def _encode_chunk(chunk: NDArray[Any], packed: Packed, part: slice, weights: F32Array | None) -> None:
    scheme, (rows, k) = packed.scheme, chunk.shape
    if scheme.blocks is not None:
        _encode_blocks(cast_saturating(chunk, np.dtype(np.float32)), packed, part, weights)
        return
    if scheme.scale_dtype is None:
        codes = plain_codes(chunk, scheme.dtype)
    else:
        size, host = scheme.group or k, scheme.scale_dtype.host
        whole = k - k % size
        pieces: list[QuantizedGroups] = []
        if whole:
            pieces.append(quantize(chunk[:, :whole].reshape(rows, -1, size), scheme.dtype, host))
        if whole < k:
            pieces.append(quantize(chunk[:, None, whole:], scheme.dtype, host))
        codes = _join([piece.codes.reshape(rows, -1) for piece in pieces])
        _store(packed.scales, part, [piece.scales for piece in pieces])
        _store(packed.offsets, part, [piece.offsets for piece in pieces])
    packed.payload[part] = pack_codes(codes, scheme.dtype.bits, packed.payload.shape[1])


def _join(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)


def _store(target: NDArray[Any] | None, part: slice, pieces: list[NDArray[Any] | None]) -> None:
    if target is not None:
        target[part] = _join([piece for piece in pieces if piece is not None])


@cache
def _values_of_byte(dtype: DType) -> F32Array:
    """The values of the codes in each possible byte, float32 ``[256, codes per byte]``."""
    every_byte = np.zeros((256, 4), np.uint8)
    every_byte[:, 0] = np.arange(256)
    one = Packed(scheme=Scheme(dtype=dtype), shape=(256, 8 // dtype.bits), payload=every_byte.view(np.uint32))
    table = one.codes().astype(np.float32)
    table.flags.writeable = False
    return table


def _decode_chunk(packed: Packed, part: slice, out: NDArray[Any]) -> None:
    """Write the values of the rows `part` into `out`, ``[rows, k]``."""
    scheme, k = packed.scheme, packed.k
    if scheme.blocks is not None:
        values = scheme.blocks.decode(packed.slice_rows(part.start, part.stop).raw_blocks())
        out[...] = cast_saturating(values.reshape(len(out), -1)[:, :k], out.dtype)
        return
    wide = out.dtype == np.float64 or _needs_float64(packed, part)
    values = _code_values(packed.payload[part], scheme.dtype, k, wide=wide)
    if packed.scales is not None:
        size = scheme.group or k
        whole = k - k % size
        offsets = None if packed.offsets is None else packed.offsets[part]
        if whole:
            _scale(values[:, :whole].reshape(len(values), -1, size), packed.scales[part], offsets, slice(k // size))
        if whole < k:
            _scale(values[:, None, whole:], packed.scales[part], offsets, slice(k // size, None))
    out[...] = cast_saturating(values, out.dtype)


def _needs_float64(packed: Packed, part: slice) -> bool:
    """Whether scaling codes of at most 8 bits in float32 could round twice, or overflow before it can saturate.

    With float16 scales neither happens. Otherwise offsets add a second rounding; float64 never overflows. If
    float32 does not overflow the two agree, so the other rows of a chunk do not affect a row.
    """
    if packed.scales is None or packed.scales.dtype == np.float16:
        return False
    return packed.scheme.has_offset or bool(np.abs(packed.scales[part]).max(initial=0) > 2.0**60)


def _code_values(payload: NDArray[np.uint32], dtype: DType, k: int, *, wide: bool) -> NDArray[Any]:
    """Codes as numbers, ``[rows, k]``, in the dtype to scale in: float32, or float64 if `wide` or for wide integers.

    The array is new if there are scales; codes that are floats of 16 bits and more are a view of `payload`.
    """
    if dtype.bits in (1, 2, 4, 8):
        raw = np.ascontiguousarray(payload).view(np.uint8)
        values = np.take(_values_of_byte(dtype), raw, axis=0).reshape(len(raw), -1)[:, :k]
        return values.astype(np.float64) if wide else values
    codes = unpack_codes(payload, dtype.bits, k)
    if dtype.kind == "table":
        return numbers_of(dtype)[codes].astype(np.float64 if wide else np.float32, copy=False)
    if dtype.kind == "float":
        return codes.view(dtype.host)
    return codes.view(dtype.host).astype(np.float64)


def _scale(values: NDArray[Any], scales: NDArray[Any], offsets: NDArray[Any] | None, groups: slice) -> None:
    """Turn codes ``[rows, groups, size]`` into values in place."""
    values *= scales[:, groups].astype(values.dtype)[..., None]
    if offsets is not None:
        values += offsets[:, groups].astype(values.dtype)[..., None]
