"""Discrete: outputs with two or three values, as in binary and ternary networks."""

from __future__ import annotations

import math
from typing import Literal

from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import LayerSpec, layer

FUNCTIONS = ("step", "sign", "ternary")
SURROGATES = ("none", "clip", "triangle")


@layer("discrete")
class Discrete(LayerSpec):
    """Maps each element to one of two or three numbers, as in binary and ternary networks.

    ::

        step: y = [x > 0]        sign: y = [x > 0] − [x < 0]        ternary: y = [x > threshold] − [x < −threshold]

    NaN stays NaN. Behind a `Dense` with tanh it makes a layer of neurons that fire or do not. The derivative is 0
    wherever it exists. So backprop learns nothing below such a layer, unless a `surrogate` replaces the derivative, or
    the network learns without derivatives.

    Attributes
    ----------
    function : one of the three functions
    threshold : of ``ternary``, 0 or more
    surrogate : derivative that backprop uses: ``"none"``: 0; ``"clip"``: 1 for |x| ≤ 1, else 0, the straight-through
        estimator of Courbariaux et al. 2016 (arXiv 1602.02830); ``"triangle"``: max(0, 1 - |x|)
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

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        y = discrete_value(work, self, x)
        if self.surrogate == "none":
            return y
        c, constant = (_surrogate(work, self, x) for _ in range(2))
        work.detached.add(constant)
        return work.add(y, work.binary("sub", c, constant))  # adds 0, which has the surrogate's gradient


def discrete_value(work: GraphBuilder, spec: Discrete, x: int) -> int:
    """Emit the output of a discrete layer; NaN stays."""
    zero = work.scalar(0.0)
    if spec.function == "ternary":
        above = work.binary("max", work.unary(work.affine(x, 1.0, -spec.threshold), "sign"), zero)
        return work.add(above, work.binary("min", work.unary(work.affine(x, 1.0, spec.threshold), "sign"), zero))
    y = work.unary(x, "sign")
    return work.binary("max", y, zero) if spec.function == "step" else y


def _surrogate(work: GraphBuilder, spec: Discrete, x: int) -> int:
    """Emit a function of `x` with the derivative of the surrogate."""
    near = work.binary("min", work.binary("max", x, work.scalar(-1.0)), work.scalar(1.0))
    if spec.surrogate == "clip":
        return near
    return work.binary("sub", near, work.affine(work.binary("mul", near, work.unary(near, "abs")), 0.5))
