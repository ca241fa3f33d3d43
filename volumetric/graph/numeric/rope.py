"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864) with the frequency scalings that checkpoints use.

The pairing is Llama's "rotate half": element i turns together with element i + dim/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError

Scaling = Literal["none", "linear", "llama3", "yarn", "dynamic", "longrope", "proportional"]
SCALINGS: tuple[Scaling, ...] = get_args(Scaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotation of the first `dim` elements of each head.

    Pair i of position p turns by ``p · fᵢ``, where ``fᵢ = base^(-2i / dim)`` before scaling:

    - ``"linear"``: ``fᵢ / factor`` (arXiv 2306.15595)
    - ``"llama3"``: ``fᵢ / factor`` where the wavelength exceeds ``original_context / low_freq_factor``, blended up to
      ``fᵢ`` at ``original_context / high_freq_factor`` (Llama 3.1's released configuration); a step if the two are
      equal (Llama 4's)
    - ``"yarn"``: ``fᵢ / factor`` for pairs that turn less than `beta_slow` times within the original context, ``fᵢ``
      for those that turn more than `beta_fast` times, in between blended linearly by i (arXiv 2309.00071)
    - ``"dynamic"``: if sequences may be longer than the original context L, the base becomes
      ``base · (factor · context / L - factor + 1)^(dim / (dim - 2))`` (NTK-aware scaling)
    - ``"longrope"``: ``fᵢ / long_factors[i]`` if sequences may be longer than the original context, else
      ``fᵢ / short_factors[i]`` (arXiv 2402.13753)
    - ``"proportional"``: ``fᵢ / factor`` for the first `turning` pairs; the others do not turn

    ``"dynamic"`` and ``"longrope"`` depend on `context`, the maximum length of a sequence, and not on its current
    length: cached keys are already rotated, so all rows of a sequence must use the same frequencies. llama.cpp and
    vLLM do the same; transformers uses the current length and mixes both kinds in one cache.

    Attributes
    ----------
    dim : elements that rotate, even; the rest of a head passes through
    base : wavelength base θ
    factor : maximum length of sequences in units of the original context
    original_context : length of the sequences of the first training, in tokens
    truncate : for yarn: the ends of the blend are whole pairs
    attention_factor : factor on cosines and sines, so scores grow by its square (yarn, longrope)
    context : maximum length of a sequence in tokens; 0: the original context
    """

    dim: int
    base: float = 10000.0
    scaling: Scaling = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    turning: int = 0
    context: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.dim < 2 or self.dim % 2:
            raise SpecError(f"rope: dim must be even and at least 2, got {self.dim}")
        if not (self.base > 0 and math.isfinite(self.base)):
            raise SpecError(f"rope: base must be a positive number, got {self.base}")
        if self.scaling not in SCALINGS:
            raise SpecError(f"rope: unknown scaling {self.scaling!r}", hint="one of " + ", ".join(SCALINGS))
        if not self.factor >= 1:
            raise SpecError(f"rope: factor must be at least 1, got {self.factor}")
        if not (self.attention_factor > 0 and math.isfinite(self.attention_factor)):
            raise SpecError(f"rope: attention_factor must be a positive number, got {self.attention_factor}")
        if self.original_context < 1:
            raise SpecError(f"rope: original_context must be at least 1, got {self.original_context}")
        if self.scaling == "llama3" and not self.high_freq_factor >= self.low_freq_factor > 0:
            raise SpecError("rope: llama3 scaling needs high_freq_factor >= low_freq_factor > 0")
        if self.scaling == "yarn" and not (self.beta_fast >= self.beta_slow > 0 and self.base > 1):
            raise SpecError("rope: yarn scaling needs beta_fast >= beta_slow > 0 and a base above 1")
        if self.scaling == "dynamic" and self.dim == 2:
            raise SpecError("rope: dynamic scaling needs more than one pair")
        if self.scaling == "longrope":
            for name, factors in (("short", self.short_factors), ("long", self.long_factors)):
                if len(factors) != self.dim // 2 or not all(f > 0 and math.isfinite(f) for f in factors):
                    raise SpecError(f"rope: longrope needs {self.dim // 2} positive {name}_factors")
        if self.scaling == "proportional" and not 0 <= self.turning <= self.dim // 2:
            raise SpecError(f"rope: turning must be 0 … {self.dim // 2} pairs, got {self.turning}")

    def for_context(self, context: int) -> Rope:
        """Return the rotation for sequences of up to `context` tokens."""
        return replace(self, context=context) if self.scaling in ("dynamic", "longrope") else self

    @property
    def _exceeds_original(self) -> bool:
        """Whether sequences may be longer than the original context."""
        return self.context > self.original_context


def inverse_frequencies(rope: Rope) -> NDArray[np.float64]:
    """Return the radians by which each pair rotates per position, ``[dim / 2]``."""
    pairs = rope.dim // 2
    base = rope.base
    if rope.scaling == "dynamic" and rope._exceeds_original:
        stretch = rope.factor * rope.context / rope.original_context - rope.factor + 1
        base *= stretch ** (rope.dim / (rope.dim - 2))
    inverse = base ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    if rope.scaling == "linear":
        return inverse / rope.factor
    if rope.scaling == "llama3":
        turns = rope.original_context * inverse / (2 * math.pi)  # full turns within the original context
        beyond, between = turns - rope.low_freq_factor, rope.high_freq_factor - rope.low_freq_factor
        blend = np.clip(beyond / between, 0.0, 1.0) if between else np.where(beyond < 0, 0.0, 1.0)
        return (1 - blend) * inverse / rope.factor + blend * inverse
    if rope.scaling == "yarn":
        blend = _yarn_blend(rope)
        return blend * inverse / rope.factor + (1 - blend) * inverse
    if rope.scaling == "longrope":
        return inverse / np.array(rope.long_factors if rope._exceeds_original else rope.short_factors)
    if rope.scaling == "proportional":
        return np.where(np.arange(pairs) < rope.turning, inverse / rope.factor, 0.0)
    return inverse


def _yarn_blend(rope: Rope) -> NDArray[np.float64]:
    """Return the blend of each pair, 1 for a fully divided frequency: a ramp between two (fractional) pairs."""

    def pair(turns: float) -> float:  # the fractional pair that makes `turns` turns within the original context
        return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    low, high = pair(rope.beta_fast), pair(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    high = high + 0.001 if low == high else high
    return np.clip((np.arange(rope.dim // 2, dtype=np.float64) - low) / (high - low), 0.0, 1.0)


def rotation(rope: Rope, positions: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cosines and sines times `attention_factor`, each ``[*positions.shape, dim / 2]``."""
    angles = np.asarray(positions, np.float64)[..., None] * inverse_frequencies(rope)
    return rope.attention_factor * np.cos(angles), rope.attention_factor * np.sin(angles)


def rotate(rope: Rope, x: Array, positions: Array, *, back: bool = False) -> Array:
    """Rotate `x` ``[..., T, heads, head_dim]`` by positions ``[T]`` or ``[…, T]``; `back` is the inverse (the VJP)."""
    cos, sin = (table.astype(x.dtype)[..., None, :] for table in rotation(rope, positions))
    if back:
        sin = -sin
    half = rope.dim // 2
    first, second, rest = x[..., :half], x[..., half : rope.dim], x[..., rope.dim :]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
