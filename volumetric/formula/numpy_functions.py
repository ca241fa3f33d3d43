"""Functions of NumPy in formulas: ``np.exp(x)`` of an expression is the expression of exp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.formula.elementary import (
    cos,
    exp,
    floor,
    larger,
    log,
    log_of_one_plus,
    magnitude,
    sign,
    sin,
    smaller,
    sqrt,
    tanh,
)
from volumetric.formula.expression import CONDITIONS, Expression, Number, as_expression, equal, where

_MOST_FACTORS: Final = 8
"""Powers up to this exponent are computed as products."""


def power_of(x: Number, power: Number) -> Expression:
    """Return ``x ** power``: a product for a small whole exponent, else by exp and log, which need x above 0."""
    x = as_expression(x)
    if isinstance(power, Expression) or power == 0 or abs(power) > _MOST_FACTORS or (power % 1 and power != 0.5):
        return exp(power * log(x))
    if power < 0:
        return 1 / power_of(x, -power)
    if power == 0.5:
        return sqrt(x)
    product = x
    for _ in range(int(power) - 1):
        product = product * x
    return product


def call_numpy(function: Any, args: Sequence[Any], options: Mapping[str, Any], method: str = "__call__") -> Expression:
    """Return the expression of a function of NumPy.

    Raises
    ------
    SpecError : formulas do not have it, or it is called with options
    """
    name = function.__name__
    make = FUNCTIONS.get(name)
    if make is None or method != "__call__" or options:
        raise SpecError(
            f"numpy.{name} cannot be part of a formula" + (" with options" if make else ""),
            hint=suggestion(name, FUNCTIONS, "supported: " + ", ".join(sorted(FUNCTIONS))),
        )
    return make(*args)


def _where(condition: Any, then: Number, otherwise: Number) -> Expression:
    if not isinstance(condition, Expression) or condition.op not in CONDITIONS:
        raise SpecError(
            f"numpy.where needs a comparison in a formula, got {condition!r:.60}",
            hint="write numpy.where(x > 0, a, b); for equality numpy.equal(x, 0), since == compares formulas",
        )
    return where(condition, then, otherwise)


def _log_of_sum(a: Number, b: Number) -> Expression:
    return larger(a, b) + log_of_one_plus(exp(-magnitude(as_expression(a) - b)))


def _sinh(x: Expression) -> Expression:
    return (exp(x) - exp(-x)) * 0.5


FUNCTIONS: Final[dict[str, Callable[..., Expression]]] = {
    "exp": exp,
    "log": log,
    "sqrt": sqrt,
    "sin": sin,
    "cos": cos,
    "tanh": tanh,
    "sign": sign,
    "floor": floor,
    "absolute": magnitude,
    "fabs": magnitude,
    "negative": lambda x: -x,
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "ceil": lambda x: -floor(-x),
    "log1p": lambda x: log(1 + x),
    "expm1": lambda x: exp(x) - 1,
    "sinh": _sinh,
    "cosh": lambda x: (exp(x) + exp(-x)) * 0.5,
    "logaddexp": _log_of_sum,
    "maximum": larger,
    "minimum": smaller,
    "add": lambda a, b: as_expression(a) + b,
    "subtract": lambda a, b: as_expression(a) - b,
    "multiply": lambda a, b: as_expression(a) * b,
    "divide": lambda a, b: as_expression(a) / b,
    "power": power_of,
    "greater": lambda a, b: as_expression(a) > b,
    "less": lambda a, b: as_expression(a) < b,
    "greater_equal": lambda a, b: as_expression(a) >= b,
    "less_equal": lambda a, b: as_expression(a) <= b,
    "equal": equal,
    "where": _where,
    "clip": lambda x, low, high: smaller(larger(x, low), high),
}
"""Name of a function of NumPy → the expression of its result."""
