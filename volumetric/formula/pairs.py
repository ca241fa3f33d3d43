"""Functions of two numbers, each in one line, with a hand-written gradient if it is shorter than the derived one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from volumetric.formula.derivative import derivative, scaled
from volumetric.formula.elementary import greater, larger, magnitude, mul_nonzero, smaller
from volumetric.formula.expression import Expression, equal, variables, walk, where

A, B, C, G = variables("a b c g")
"""The two operands, the result and the gradient of the result."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A function of two numbers.

    Attributes
    ----------
    value : of `A` and `B`
    gradients : of both, from `A`, `B`, the result `C` and its gradient `G`; None: ``G ·`` the derivatives of `value`
    constant : operands without a gradient, by their letters
    """

    value: Expression
    gradients: tuple[Expression, Expression] | None = None
    constant: str = ""

    @property
    def input_gradients(self) -> tuple[Expression | None, ...]:
        """The gradients of both; None for an operand that has none."""
        gradients = self.gradients or tuple(scaled(G, derivative(self.value, each)) for each in (A, B))
        return tuple(
            None if each.text in self.constant or G not in walk(g) else g
            for each, g in zip((A, B), gradients, strict=True)
        )


PAIRS: Final[dict[str, Pair]] = {
    "add": Pair(A + B),
    "sub": Pair(A - B),
    "mul": Pair(A * B),
    "div": Pair(A / B, gradients=(G / B, -(G / B * C))),
    "max": Pair(larger(A, B), gradients=(G - G * greater(B, A), G * greater(B, A))),
    "min": Pair(smaller(A, B), gradients=(G - G * greater(A, B), G * greater(A, B))),
    "greater": Pair(greater(A, B)),
    "mul_nonzero": Pair(mul_nonzero(A, B), gradients=(G * B, mul_nonzero(G * A, greater(magnitude(B), 0.0)))),
    "mask": Pair(where(equal(B, 0.0), float("-inf"), A), gradients=(mul_nonzero(G, B), G), constant="b"),
}
"""Name → function. `larger` and `smaller` pass the gradient to the first of equal operands; NaN wins."""

FUSED: Final = (*(name for name in PAIRS if name != "mask"), "affine", "abs", "square", "neg")
"""Functions of one or two numbers that a GPU can fuse in one launch, by the number of a step: the cheap ones."""
