"""The elementary functions: those for which a device has hand-written code, each with its derivative.

Every device computes them as exactly and safely as it can over all of float32: none overflows before its result does,
and NaN stays NaN. `writing.Language` maps them to the device's language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volumetric.formula.expression import Expression, Number, as_expression, equal, node, where


def _function(name: str) -> Callable[..., Expression]:
    """Return a constructor of the function's expression from expressions or numbers."""

    def of(*args: Number) -> Expression:
        return node(name, *map(as_expression, args))

    return of


exp, log, sqrt, sin, cos, tanh = map(_function, ("exp", "log", "sqrt", "sin", "cos", "tanh"))
magnitude, sign, floor = map(_function, ("abs", "sign", "floor"))
sigmoid = _function("sigmoid")  # 1 / (1 + e⁻ˣ)
softplus = _function("softplus")  # log(1 + eˣ)
log_of_one_plus = _function("log_of_one_plus")  # log(1 + x) for x in 0 … 1, with all digits of a small x
positive = _function("positive")  # max(x, 0)
twice_normal = _function("twice_normal")  # 1 + erf(x / √2): twice the standard normal distribution function
normal_density = _function("normal_density")  # exp(−x²/2) / √(2π)
larger, smaller = _function("max"), _function("min")  # of two; NaN wins
greater = _function("greater")  # 1 where a > b, else 0
mul_nonzero = _function("mul_nonzero")  # a · b, but 0 where b is 0, whatever a is

EXPANDED: Final[dict[str, Callable[..., Expression]]] = {
    "normal_density": lambda x: exp(-0.5 * x * x) * 0.3989422804014327,
    "greater": lambda a, b: where(a > b, 1.0, 0.0),
    "mul_nonzero": lambda a, b: where(equal(b, 0.0), 0.0, a * b),
}
"""Function → its expansion, for languages without a word for it."""

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
