"""Discrete: what crosses is one of two or three numbers, as in binary and ternary networks."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.base import Arrays, Grads, LayerSpec, Memory, Saved, layer

FUNCTIONS = ("step", "sign", "ternary")
SURROGATES = ("none", "clip", "triangle")


@layer("discrete")
class Discrete(LayerSpec):
    """``step``: 1 above 0, else 0. ``sign``: -1, 0 at 0, 1. ``ternary``: 1 above `threshold`, -1 below -`threshold`, 0.

    NaN stays. The derivative is 0 wherever there is one, so backprop learns nothing below such a layer unless a
    surrogate stands in for it.

    Attributes
    ----------
    function : which
    threshold : of ``ternary``, 0 or more
    surrogate : what backprop takes for the derivative: ``"none"``: 0; ``"clip"``: 1 for |x| ≤ 1, else 0, the
        straight-through estimator of Courbariaux et al. 2016 (arXiv 1602.02830); ``"triangle"``: max(0, 1 - |x|)
    """

    function: Literal["step", "sign", "ternary"] = "sign"
    threshold: float = 0.5
    surrogate: Literal["none", "clip", "triangle"] = "none"

    def __post_init__(self) -> None:
        """Check the fields."""
        for name, known in (("function", FUNCTIONS), ("surrogate", SURROGATES)):
            if getattr(self, name) not in known:
                raise SpecError(f"discrete: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise SpecError(f"discrete: the threshold must be 0 or more, got {self.threshold}")

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        if self.function == "ternary":
            bound = x.dtype.type(self.threshold)
            y = np.maximum(np.sign(x - bound), 0) + np.minimum(np.sign(x + bound), 0)
        else:
            y = np.sign(x)
            if self.function == "step":
                y = np.maximum(y, 0)
        return y, {"x": x}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        far = np.abs(saved["x"])
        if self.surrogate == "none":
            return Grads((np.zeros_like(gy),))
        inside = far <= 1
        slope = inside if self.surrogate == "clip" else np.where(inside, 1 - far, 0)
        return Grads(((gy * slope).astype(gy.dtype),))
