"""GGUF's block formats Q8_0, Q4_0 and Q4_1 to `Packed` and back, by moving bits only.

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

from volumetric.dtypes.packed import Packed
from volumetric.dtypes.scheme import Scheme
from volumetric.errors import DTypeError, ShapeError

BLOCK = 32
_BLOCK_BYTES: dict[str, int] = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}
_CHUNK_BYTES = 1 << 20  # bounds temporaries, and keeps them in the processor's cache


def from_gguf(raw: NDArray[np.uint8], gguf_type: str, shape: Sequence[int]) -> Packed:
    """Rearrange the blocks of one GGUF tensor into a `Packed` of exactly the same numbers.

    Parameters
    ----------
    raw : uint8, any shape
        The tensor's bytes.
    gguf_type : ``"Q8_0"``, ``"Q4_0"`` or ``"Q4_1"``
    shape : logical shape, rows first (GGUF files list the axes the other way round)

    Raises
    ------
    DTypeError
        `gguf_type` is not one of the three.
    ShapeError
        The last axis is not a multiple of 32, or `raw` has another number of bytes than the shape requires.
    """
    if gguf_type not in _BLOCK_BYTES:
        raise DTypeError(f"GGUF type {gguf_type} cannot be rearranged", hint=f"use one of {', '.join(_BLOCK_BYTES)}")
    shape = tuple(int(axis) for axis in shape)
    scheme = Scheme.parse(gguf_type)
    rows, groups = _blocks_of(shape, gguf_type)
    size = _BLOCK_BYTES[gguf_type]
    if raw.size != rows * groups * size:
        raise ShapeError(f"{gguf_type} of shape {shape} takes {rows * groups * size} bytes, got {raw.size}")
    blocks = raw.reshape(rows * groups, size)
    payload = np.empty((rows, scheme.words_per_row(groups * BLOCK)), np.uint32)
    scales = np.empty((rows, groups), np.float16)
    offsets = np.empty((rows, groups), np.float16) if scheme.has_offset else None
    codes = payload.view(np.uint8).reshape(rows * groups, -1) if rows * groups else payload.view(np.uint8)
    step = _CHUNK_BYTES // size
    for start in range(0, rows * groups, step):
        part = slice(start, start + step)
        block = blocks[part]
        scales.reshape(-1)[part] = _halves(block[:, 0:2])
        if offsets is not None:
            offsets.reshape(-1)[part] = _halves(block[:, 2:4])
        if gguf_type == "Q8_0":
            codes[part] = block[:, 2:]
        else:
            _interleave(block[:, size - 16 :], codes[part], flip=gguf_type == "Q4_0")
    return Packed(scheme=scheme, shape=shape, payload=payload, scales=scales, offsets=offsets)


def to_gguf(packed: Packed) -> bytes:
    """Return the GGUF blocks of a tensor in scheme int8:g32, int4:g32 or uint4:g32: the inverse of `from_gguf`.

    Raises
    ------
    DTypeError
        The scheme has no GGUF block form.
    ShapeError
        The last axis is not a multiple of 32.
    """
    gguf_type = packed.scheme.gguf_type
    if gguf_type not in _BLOCK_BYTES or packed.scales is None:
        raise DTypeError(f"{packed.scheme} has no GGUF block form", hint="int8:g32, int4:g32 and uint4:g32 have one")
    rows, groups = _blocks_of(packed.shape, gguf_type)
    size = _BLOCK_BYTES[gguf_type]
    blocks = np.empty((rows * groups, size), np.uint8)
    if not blocks.size:
        return b""
    codes = np.ascontiguousarray(packed.payload).view(np.uint8).reshape(rows * groups, -1)
    blocks[:, 0:2] = np.ascontiguousarray(packed.scales).reshape(-1, 1).view(np.uint8)
    if packed.offsets is not None:
        blocks[:, 2:4] = np.ascontiguousarray(packed.offsets).reshape(-1, 1).view(np.uint8)
    step = _CHUNK_BYTES // size
    for start in range(0, rows * groups, step):
        part = slice(start, start + step)
        if gguf_type == "Q8_0":
            blocks[part, 2:] = codes[part]
        else:
            _deinterleave(codes[part], blocks[part, size - 16 :], flip=gguf_type == "Q4_0")
    return blocks.tobytes()


def _blocks_of(shape: Sequence[int], gguf_type: str) -> tuple[int, int]:
    k = shape[-1] if shape else 1
    if k % BLOCK:
        raise ShapeError(f"{gguf_type} needs rows of a multiple of {BLOCK} elements, got {k}")
    return prod(shape[:-1]), k // BLOCK


def _halves(two_bytes: NDArray[np.uint8]) -> NDArray[np.float16]:
    return np.ascontiguousarray(two_bytes).view(np.float16).reshape(-1)


def _interleave(halves: NDArray[np.uint8], out: NDArray[Any], *, flip: bool) -> None:
    """Bytes that pair elements j and j + 16 → bytes that pair 2i and 2i + 1.

    `flip` also turns codes that are stored plus 8 into two's complement, which in four bits is flipping the top one.
    """
    pairs = np.ascontiguousarray(halves).view(np.uint16)  # two bytes: elements 2i, 2i+16 and 2i+1, 2i+17
    out[:, :8] = (pairs & 0x0F) | ((pairs >> 4) & 0xF0)
    out[:, 8:] = ((pairs >> 4) & 0x0F) | ((pairs >> 8) & 0xF0)
    if flip:
        out ^= 0x88


def _deinterleave(codes: NDArray[np.uint8], out: NDArray[np.uint8], *, flip: bool) -> None:
    if flip:
        codes = codes ^ np.uint8(0x88)
    low, high = codes[:, :8], codes[:, 8:]
    out[:, 0::2] = (low & 0x0F) | (high << 4)
    out[:, 1::2] = (low >> 4) | (high & 0xF0)
