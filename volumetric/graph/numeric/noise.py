"""Noise that any device can draw alone: a hash of where it is used, so that nothing depends on order or threads.

The hash is PCG4D of Jarzynski & Olano 2020, "Hash Functions for GPU Rendering" (Journal of Computer Graphics Techniques
9:3), in which four 32-bit numbers go in and four come out: linear congruential steps, and products of one with another.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array

Key: TypeAlias = tuple[int, int]
"""Two 32-bit numbers that every draw of a pass depends on."""
LEVELS: Final = 1 << 24
"""Steps of probability: chances are compared in units of 2⁻²⁴."""
_WORD: Final = 1 << 32
_U32 = NDArray[np.uint32]


def pcg4d(x: _U32, y: _U32, z: _U32, w: _U32) -> tuple[_U32, _U32, _U32, _U32]:
    """Hash four arrays of uint32 that broadcast."""
    multiplier, increment = np.uint32(1664525), np.uint32(1013904223)
    with np.errstate(over="ignore"):  # all of it is modulo 2**32
        x, y, z, w = (v * multiplier + increment for v in (x, y, z, w))
        for last in (False, True):
            x = x + y * w
            y = y + z * x
            z = z + x * y
            w = w + y * z
            if not last:
                x, y, z, w = (v ^ (v >> np.uint32(16)) for v in (x, y, z, w))
    return x, y, z, w


def noise_key(seed: int, update: int, part: int) -> Key:
    """Return the key of a pass: of a run's `seed`, the updates made before it, and the batch's number in the update."""
    low, high = seed % (1 << 32), (seed >> 32) % (1 << 32)
    first, second, _, _ = pcg4d(*(np.array(n % (1 << 32), np.uint32) for n in (low, high, update, part)))
    return int(first), int(second)


def stream_of(path: str) -> int:
    """Return the 32-bit number of a layer's own stream: a checksum of its place, as ``"1.0.0.0/2"``."""
    return zlib.crc32(path.encode())


def threshold_of(p: float) -> int:
    """Return the chance `p` in units of 2⁻²⁴."""
    return round(p * LEVELS)


def kept(shape: tuple[int, ...], p: float, key: Key, stream: int, first: int = 0) -> NDArray[np.bool_]:
    """Say which elements of an array stay when each is dropped with the chance `p`.

    Element i (in row-major order, plus `first`) is dropped where the upper 24 bits of ``pcg4d(i, stream, *key)`` are
    below `threshold_of` p.
    """
    count = int(np.prod(shape, dtype=np.int64))
    index = ((np.arange(count, dtype=np.int64) + first) % (1 << 32)).astype(np.uint32)
    others = (np.array([n], np.uint32) for n in (stream, *key))
    return (pcg4d(index, *others)[0] >> np.uint32(8) >= threshold_of(p)).reshape(shape)


def gumbel(width: int, positions: NDArray[np.integer], seed: int) -> NDArray[np.float64]:
    """Return Gumbel noise, ``-log(-log u)``, for rows of `width` numbers at `positions`, an axis behind theirs.

    Element i of the row at position t has ``u = (n + 0.5) / 2**23``, where n is the upper 23 bits of
    ``pcg4d(i, t, low, high)`` of the seed's halves: u is exact in float32, and never 0 or 1.
    """
    places = (positions.astype(np.int64)[..., None] % _WORD).astype(np.uint32)
    low, high = (np.array([part % _WORD], np.uint32) for part in (seed, seed >> 32))
    n = pcg4d(np.arange(width, dtype=np.uint32), places, low, high)[0] >> np.uint32(9)
    return -np.log(-np.log((n + 0.5) / (1 << 23)))


def normal(shape: tuple[int, ...], key: Key, stream: int, first: int = 0) -> NDArray[np.float64]:
    """Return standard normal noise by the transform of Box & Muller 1958 (Annals of Mathematical Statistics 29:2).

    Element i (in row-major order, plus `first`) is ``√(-2 log u) cos(2π v)``, where u and v are ``(n + 0.5) / 2**23``
    with the upper 23 bits of the first and the second word of ``pcg4d(i, stream, *key)`` as n. Both are exact in
    float32, and u is never 0 or 1: no element is beyond 5.77.
    """
    count = int(np.prod(shape, dtype=np.int64))
    index = ((np.arange(count, dtype=np.int64) + first) % _WORD).astype(np.uint32)
    words = pcg4d(index, *(np.array([n % _WORD], np.uint32) for n in (stream, *key)))
    u, v = (((word >> np.uint32(9)) + 0.5) / (1 << 23) for word in words[:2])
    return (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(shape)


def dropped(x: Array, keep: NDArray[np.bool_], p: float) -> Array:
    """Return ``x / (1 - p)`` where `keep` holds, and 0, whatever x is, elsewhere."""
    return np.where(keep, x * x.dtype.type(0 if p == 1 else 1 / (1 - p)), x.dtype.type(0))
