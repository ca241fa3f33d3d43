"""Convert GGUF's quantised tensors to `Packed` and back, by moving bits only.

Block formats keep their bytes. Q8_0, Q4_0 and Q4_1 have equivalent schemes and are rearranged.

Each block holds 32 neighbours of a row: Q8_0 is a float16 scale and 32 int8 (34 bytes); Q4_0 a float16 scale and 16
bytes (18); Q4_1 a float16 scale, a float16 offset and 16 bytes (20). Byte j of a 4-bit block holds element j in the low
half and element j + 16 in the high half; Q4_0 stores code + 8. (``block_q8_0`` and so on in ggml's ``ggml-common.h``.)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DTypeError, ShapeError
from volumetric.dtypes.blocks import BLOCK_FORMATS, BlockFormat, find_format
from volumetric.dtypes.packed import Packed
from volumetric.dtypes.scheme import Scheme

_BLOCK = 32
_RECORDS: dict[str, np.dtype[Any]] = {
    "Q8_0": np.dtype([("scale", "<f2"), ("codes", "V32")]),
    "Q4_0": np.dtype([("scale", "<f2"), ("codes", "V16")]),
    "Q4_1": np.dtype([("scale", "<f2"), ("offset", "<f2"), ("codes", "V16")]),
}
_CHUNK = 1 << 12  # blocks; small enough for temporaries to stay in the cache and be reused


def from_gguf(raw: NDArray[np.uint8], gguf_type: str, shape: Sequence[int]) -> Packed:
    """Rearrange the blocks of one GGUF tensor into a `Packed` of exactly the same numbers.

    Parameters
    ----------
    raw : uint8, any shape
        The tensor's bytes.
    gguf_type : ``"Q8_0"``, ``"Q4_0"``, ``"Q4_1"``, or the name of a block format, ``"Q4_K"``, whose bytes the result
        then shares if its rows are whole words
    shape : logical shape, rows first (GGUF files list the axes the other way round)

    Raises
    ------
    DTypeError
        `gguf_type` is none of these, or `raw` does not hold bytes.
    ShapeError
        The last axis does not fill whole blocks, or `raw` has another number of bytes than the shape requires.
    """
    blocks = find_format(gguf_type)
    if blocks is not None and not blocks.in_gguf:
        blocks = None
    if blocks is None and gguf_type not in _RECORDS:
        known = ", ".join([*_RECORDS, *(each.gguf_type for each in BLOCK_FORMATS.values())])
        raise DTypeError(f"GGUF type {gguf_type} cannot be stored without conversion", hint=f"use one of {known}")
    if raw.dtype != np.uint8:
        raise DTypeError(f"blocks of {gguf_type} must be uint8, got {raw.dtype}", hint="view the array as uint8")
    shape = tuple(int(axis) for axis in shape)
    if blocks is not None:
        return _word_rows(raw, blocks, shape)
    rows, groups = _blocks_of(shape, gguf_type, _BLOCK)
    record = _RECORDS[gguf_type]
    if raw.size != rows * groups * record.itemsize:
        raise ShapeError(f"{gguf_type} of shape {shape} takes {rows * groups * record.itemsize} bytes, got {raw.size}")
    blocks = np.ascontiguousarray(raw).reshape(-1).view(record)
    codes = np.empty(len(blocks), record["codes"])
    for start in range(0, len(blocks), _CHUNK):
        part = slice(start, start + _CHUNK)
        codes[part] = _from_block(blocks["codes"][part], gguf_type)
    return Packed(
        scheme=Scheme.parse(gguf_type),
        shape=shape,
        payload=codes.view(np.uint32).reshape(rows, groups * record["codes"].itemsize // 4),
        scales=blocks["scale"].reshape(rows, groups).copy(),
        offsets=blocks["offset"].reshape(rows, groups).copy() if "offset" in (record.names or ()) else None,
    )


def to_gguf(packed: Packed) -> bytes:
    """Return the GGUF blocks of a tensor in int8:g32, int4:g32, uint4:g32 or a block format; inverts `from_gguf`.

    Raises
    ------
    DTypeError
        The scheme has no GGUF block form.
    ShapeError
        The last axis does not fill whole blocks.
    """
    gguf_type = packed.scheme.gguf_type
    if packed.scheme.blocks is not None and gguf_type is not None:
        _blocks_of(packed.shape, packed.scheme.blocks.gguf_type, packed.scheme.blocks.size)
        return packed.raw_blocks().tobytes()
    if gguf_type not in _RECORDS or packed.scales is None:
        raise DTypeError(f"{packed.scheme} has no GGUF block form", hint="int8:g32, int4:g32 and uint4:g32 have one")
    rows, groups = _blocks_of(packed.shape, gguf_type, _BLOCK)
    record = _RECORDS[gguf_type]
    blocks = np.empty(rows * groups, record)
    blocks["scale"] = packed.scales.reshape(-1)
    if packed.offsets is not None:
        blocks["offset"] = packed.offsets.reshape(-1)
    codes = np.ascontiguousarray(packed.payload).reshape(-1).view(record["codes"])
    for start in range(0, len(blocks), _CHUNK):
        part = slice(start, start + _CHUNK)
        blocks["codes"][part] = _to_block(codes[part], gguf_type)
    return blocks.tobytes()


def _word_rows(raw: NDArray[np.uint8], blocks: BlockFormat, shape: tuple[int, ...]) -> Packed:
    """Rows of blocks unchanged: a view if rows are whole words and `raw` starts at one, else a copy."""
    rows, count = _blocks_of(shape, blocks.gguf_type, blocks.size)
    row_bytes = count * blocks.block_bytes
    if raw.size != rows * row_bytes:
        raise ShapeError(f"{blocks.gguf_type} of shape {shape} takes {rows * row_bytes} bytes, got {raw.size}")
    scheme = Scheme.parse(blocks.name)
    matrix = np.ascontiguousarray(raw).reshape(rows, row_bytes)
    words = scheme.words_per_row(count * blocks.size)
    if row_bytes % 4 or matrix.ctypes.data % 4:
        padded = np.zeros((rows, 4 * words), np.uint8)
        padded[:, :row_bytes] = matrix
        matrix = padded
    return Packed(scheme=scheme, shape=shape, payload=matrix.view(np.uint32).reshape(rows, words))


def _blocks_of(shape: Sequence[int], gguf_type: str, size: int) -> tuple[int, int]:
    k = shape[-1] if shape else 1
    if k % size:
        raise ShapeError(f"{gguf_type} needs rows of a multiple of {size} elements, got {k}")
    return prod(shape[:-1]), k // size


# For 4-bit codes, converting between code + 8 and two's complement flips the top bit.
_FLIP = np.uint16(0x8888)


def _from_block(codes: NDArray[np.void], gguf_type: str) -> NDArray[np.void]:
    """Bytes that pair elements j and j + 16 → bytes that pair 2i and 2i + 1."""
    if gguf_type == "Q8_0":
        return codes
    pairs = np.ascontiguousarray(codes).view(np.uint16)  # from the low bits: elements 2i, 2i + 16, 2i + 1, 2i + 17
    if gguf_type == "Q4_0":
        pairs = pairs ^ _FLIP
    out = np.empty((len(codes), 2), np.uint64)
    out[:, 0] = _even_nibbles(pairs).view(np.uint64)
    out[:, 1] = _even_nibbles(pairs >> 4).view(np.uint64)
    return out.view(codes.dtype).reshape(-1)


def _to_block(codes: NDArray[np.void], gguf_type: str) -> NDArray[np.void]:
    if gguf_type == "Q8_0":
        return codes
    words = codes.view(np.uint64).reshape(-1, 2)
    pairs = _spread_nibbles(words[:, 0]) | (_spread_nibbles(words[:, 1]) << 4)
    if gguf_type == "Q4_0":
        pairs ^= _FLIP
    return pairs.view(codes.dtype)


def _even_nibbles(pairs: NDArray[Any]) -> NDArray[np.uint8]:
    """Nibbles 0 and 2 of each uint16, as one byte."""
    nibbles = pairs & 0x0F0F
    nibbles |= nibbles >> 4
    return nibbles.astype(np.uint8)


def _spread_nibbles(words: NDArray[np.uint64]) -> NDArray[Any]:
    """The two nibbles of each byte, as nibbles 0 and 2 of a uint16: the inverse of `_even_nibbles`."""
    raw = np.ascontiguousarray(words).view(np.uint8).astype(np.uint16)
    return (raw & 0x0F) | ((raw & 0xF0) << 4)
