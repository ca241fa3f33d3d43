"""Pack codes into 32-bit words and unpack them, for every width from 1 to 64 bits.

Element j of a row occupies bits [j · width, (j + 1) · width) of the row's bit string; bit b of the string is bit
b mod 32 of word b div 32. A row is padded with zero bits to a whole word. On a little-endian machine codes of 8 bits
and more are therefore already packed; narrower codes are folded pairwise: two w-bit codes in neighbouring
bytes become one 2w-bit code, until the bytes are full. Codes of other widths than powers of two are packed bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import U32Array

_FIELDS = {1: 0x0101, 2: 0x0303, 4: 0x0F0F}


def pack_codes(codes: NDArray[Any], bits: int, words: int) -> U32Array:
    """Pack unsigned codes ``[rows, k]`` into ``[rows, words]``.

    Parameters
    ----------
    codes : uint8 with values below ``2**bits`` if `bits` is at most 8, uint16 if it is below 16,
        otherwise any dtype of `bits` bits
    words : words per row, at least ``ceil(k * bits / 32)``

    Returns
    -------
    A view of `codes` if they are contiguous, of 8 bits or more, and fill the words; otherwise a new array.
    """
    rows, k = codes.shape
    if bits & (bits - 1):
        each = np.ascontiguousarray(codes).view(np.uint8).reshape(rows, k, -1)
        every = np.unpackbits(each, axis=-1, count=bits, bitorder="little").reshape(rows, k * bits)
        padded = np.pad(np.packbits(every, axis=-1, bitorder="little"), ((0, 0), (0, 4 * words - -(-k * bits // 8))))
        return np.ascontiguousarray(padded).view(np.uint32)
    columns = words * 32 // bits
    if k != columns:
        padded = np.zeros((rows, columns), codes.dtype)
        padded[:, :k] = codes
        codes = padded
    raw = np.ascontiguousarray(codes)
    while bits < 8:
        pairs = raw.view(np.uint16)
        raw = (pairs | (pairs >> (8 - bits))).astype(np.uint8)
        bits *= 2
    return raw.view(np.uint32)


def unpack_codes(payload: U32Array, bits: int, k: int) -> NDArray[Any]:
    """Unpack ``[rows, words]`` into unsigned codes ``[rows, k]``: the smallest integers that hold `bits` bits.

    The result is a view of `payload` if the codes are whole bytes.
    """
    payload = np.ascontiguousarray(payload)
    if bits & (bits - 1):
        every = np.unpackbits(payload.view(np.uint8), axis=-1, count=k * bits, bitorder="little")
        each = np.packbits(every.reshape(len(payload), k, bits), axis=-1, bitorder="little")
        return np.ascontiguousarray(each).view(np.uint8 if bits < 8 else np.uint16)[..., 0]
    if bits >= 8:
        return payload.view(np.dtype(f"u{bits // 8}"))[:, :k]
    raw = payload.view(np.uint8)
    width = 8
    while width > bits:
        width //= 2
        pairs = raw.astype(np.uint16)
        raw = ((pairs | (pairs << (8 - width))) & np.uint16(_FIELDS[width])).view(np.uint8)
    return raw[:, :k]
