"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864) with the frequency scalings that checkpoints use.

The pairing is Llama's "rotate half": element i turns together with element i + dim/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import Array
from volumetric.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotation of the first `dim` elements of each head.

    Attributes
    ----------
    dim : elements that turn, even; the rest of a head passes through
    base : wavelength base θ
    scaling : ``"linear"`` divides positions by `factor` (arXiv 2306.15595); ``"llama3"`` divides only the frequencies
        whose wavelength exceeds ``original_context / low_freq_factor`` and blends up to ``/ high_freq_factor``
        (Llama 3.1's released configuration)
    """

    dim: int
    base: float = 10000.0
    scaling: Literal["none", "linear", "llama3"] = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.dim < 2 or self.dim % 2:
            raise SpecError(f"rope: dim must be even and at least 2, got {self.dim}")
        if not (self.base > 0 and math.isfinite(self.base)):
            raise SpecError(f"rope: base must be a positive number, got {self.base}")
        if not self.factor >= 1:
            raise SpecError(f"rope: factor must be at least 1, got {self.factor}")
        if self.scaling == "llama3" and not self.high_freq_factor > self.low_freq_factor > 0:
            raise SpecError("rope: llama3 scaling needs high_freq_factor > low_freq_factor > 0")


def inverse_frequencies(rope: Rope) -> NDArray[np.float64]:
    """Radians that each pair turns per position, ``[dim / 2]``."""
    inverse = rope.base ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    if rope.scaling == "linear":
        return inverse / rope.factor
    if rope.scaling == "llama3":
        turns = rope.original_context * inverse / (2 * math.pi)  # full turns within the original context
        blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        blend = np.clip(blend, 0.0, 1.0)
        return (1 - blend) * inverse / rope.factor + blend * inverse
    return inverse


def rotation(rope: Rope, positions: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosines and sines, each ``[len(positions), dim / 2]``."""
    angles = np.asarray(positions, np.float64)[:, None] * inverse_frequencies(rope)
    return np.cos(angles), np.sin(angles)


def rotate(rope: Rope, x: Array, positions: Array, *, back: bool = False) -> Array:
    """Turn `x` ``[..., T, heads, head_dim]`` by its positions ``[T]``; `back` turns the other way (the VJP)."""
    cos, sin = (table.astype(x.dtype)[:, None, :] for table in rotation(rope, positions))
    if back:
        sin = -sin
    half = rope.dim // 2
    first, second, rest = x[..., :half], x[..., half : rope.dim], x[..., rope.dim :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
