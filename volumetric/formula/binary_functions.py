"""Functions of two numbers, each in one line, with a hand-written gradient if it is shorter than the derived one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from volumetric.formula.derivative import derivative, scale_expression
from volumetric.formula.elementary import greater, larger, magnitude, mul_nonzero, smaller
from volumetric.formula.expression import Expression, equal, subexpressions, variables, where

A, B, C, G = variables("a b c g")
"""The two operands, the result and the gradient of the result."""


@dataclass(frozen=True, slots=True)
class BinaryFormula:
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
        gradients = self.gradients or tuple(scale_expression(G, derivative(self.value, each)) for each in (A, B))
        return tuple(
            None if each.text in self.constant or G not in subexpressions(g) else g
            for each, g in zip((A, B), gradients, strict=True)
        )


PAIRS: Final[dict[str, BinaryFormula]] = {
    "add": BinaryFormula(A + B),
    "sub": BinaryFormula(A - B),
    "mul": BinaryFormula(A * B),
    "div": BinaryFormula(A / B, gradients=(G / B, -(G / B * C))),
    "max": BinaryFormula(larger(A, B), gradients=(G - G * greater(B, A), G * greater(B, A))),
    "min": BinaryFormula(smaller(A, B), gradients=(G - G * greater(A, B), G * greater(A, B))),
    "greater": BinaryFormula(greater(A, B)),
    "mul_nonzero": BinaryFormula(mul_nonzero(A, B), gradients=(G * B, mul_nonzero(G * A, greater(magnitude(B), 0.0)))),
    "mask": BinaryFormula(where(equal(B, 0.0), float("-inf"), A), gradients=(mul_nonzero(G, B), G), constant="b"),
}
"""Name → function. `larger` and `smaller` pass the gradient to the first of equal operands; NaN wins."""

FUSED: Final = (*(name for name in PAIRS if name != "mask"), "affine", "abs", "square", "neg", "sqrt")
"""Functions of one or two numbers that a GPU can fuse in one launch, by the number of a step: the cheap ones."""
