"""Counter-based noise: a hash of the element's place, so results depend on neither order nor threads nor device.

The hash is PCG4D of Jarzynski & Olano 2020, "Hash Functions for GPU Rendering" (Journal of Computer Graphics Techniques
9:3), in which four 32-bit numbers go in and four come out: linear congruential steps, and products of one with another.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Key: TypeAlias = tuple[int, int]
"""Two 32-bit numbers: the key of all draws of a pass."""
LEVELS: Final = 1 << 24
"""Levels of probability: probabilities are compared in units of 2⁻²⁴."""
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
    """Return the key of a pass: a run's `seed`, the number of earlier updates, and the batch's index in its update."""
    low, high = seed % (1 << 32), (seed >> 32) % (1 << 32)
    first, second, _, _ = pcg4d(*(np.array(n % (1 << 32), np.uint32) for n in (low, high, update, part)))
    return int(first), int(second)


def stream_of(path: str) -> int:
    """Return the 32-bit number of a layer's stream: a checksum of its place, such as ``"1.0.0.0/2"``."""
    return zlib.crc32(path.encode())


def threshold_of(p: float) -> int:
    """Return the probability `p` in units of 2⁻²⁴."""
    return round(p * LEVELS)
