"""The elementary functions: those that a device has code of its own for, each with its derivative.

Every device computes these as exactly and as safely as it can, over all of float32: none overflows before its result
does, and NaN stays NaN. The words of a device for them are in its language (`writing.Language`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volumetric.formula.expression import Expression, Number, as_expression, equal, node, where


def exp(x: Number) -> Expression:
    """``eˣ``."""
    return node("exp", as_expression(x))


def log(x: Number) -> Expression:
    """Natural logarithm."""
    return node("log", as_expression(x))


def log_of_one_plus(x: Number) -> Expression:
    """``log(1 + x)`` for x in 0 … 1, with all digits of a small x."""
    return node("log_of_one_plus", as_expression(x))


def sqrt(x: Number) -> Expression:
    """Square root."""
    return node("sqrt", as_expression(x))


def magnitude(x: Number) -> Expression:
    """``|x|``."""
    return node("abs", as_expression(x))


def sign(x: Number) -> Expression:
    """−1, 0 or 1."""
    return node("sign", as_expression(x))


def floor(x: Number) -> Expression:
    """Largest whole number that is at most x."""
    return node("floor", as_expression(x))


def sin(x: Number) -> Expression:
    """Sine."""
    return node("sin", as_expression(x))


def cos(x: Number) -> Expression:
    """Cosine."""
    return node("cos", as_expression(x))


def tanh(x: Number) -> Expression:
    """Hyperbolic tangent."""
    return node("tanh", as_expression(x))


def sigmoid(x: Number) -> Expression:
    """Logistic function ``1 / (1 + e⁻ˣ)``."""
    return node("sigmoid", as_expression(x))


def softplus(x: Number) -> Expression:
    """``log(1 + eˣ)``."""
    return node("softplus", as_expression(x))


def positive(x: Number) -> Expression:
    """``max(x, 0)``."""
    return node("positive", as_expression(x))


def twice_normal(x: Number) -> Expression:
    """``1 + erf(x / √2)``: twice the standard normal distribution function."""
    return node("twice_normal", as_expression(x))


def normal_density(x: Number) -> Expression:
    """Standard normal density ``exp(−x²/2) / √(2π)``."""
    return node("normal_density", as_expression(x))


def larger(a: Number, b: Number) -> Expression:
    """The larger one of two; NaN wins."""
    return node("max", as_expression(a), as_expression(b))


def smaller(a: Number, b: Number) -> Expression:
    """The smaller one of two; NaN wins."""
    return node("min", as_expression(a), as_expression(b))


def greater(a: Number, b: Number) -> Expression:
    """1 where ``a > b``, else 0."""
    return node("greater", as_expression(a), as_expression(b))


def mul_nonzero(a: Number, b: Number) -> Expression:
    """``a · b``, but 0 where b is 0, whatever a is."""
    return node("mul_nonzero", as_expression(a), as_expression(b))


EXPANDED: Final[dict[str, Callable[..., Expression]]] = {
    "normal_density": lambda x: exp(-0.5 * x * x) * 0.3989422804014327,
    "greater": lambda a, b: where(a > b, 1.0, 0.0),
    "mul_nonzero": lambda a, b: where(equal(b, 0.0), 0.0, a * b),
}
"""Function → what languages write for it that have no word for it."""

DERIVATIVES: Final[dict[str, Callable[[Expression, Expression], Number]]] = {
    "exp": lambda x, y: y,
    "log": lambda x, y: 1 / x,
    "log_of_one_plus": lambda x, y: 1 / (1 + x),
    "sqrt": lambda x, y: 0.5 / y,
    "abs": lambda x, y: sign(x),
    "sign": lambda x, y: 0.0,
    "floor": lambda x, y: 0.0,
    "sin": lambda x, y: cos(x),
    "cos": lambda x, y: -sin(x),
    "tanh": lambda x, y: 1 - y * y,
    "sigmoid": lambda x, y: y * (1 - y),
    "softplus": lambda x, y: sigmoid(x),
    "positive": lambda x, y: where(x > 0, 1.0, 0.0),
    "twice_normal": lambda x, y: 2.0 * normal_density(x),
    "normal_density": lambda x, y: -(x * y),
}
"""Function of one number → its derivative, of the number x and the result y; at a kink the one from the left."""
