"""Expressions of numbers: an immutable graph of operations, in the exact order in which devices compute them.

Nothing is rearranged: ``a * b * c`` is ``(a * b) * c`` on every device, so a formula determines its rounding. Equal
expressions are one object; shared subexpressions are computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from volumetric.base.errors import SpecError

Number: TypeAlias = "Expression | float"

CONDITIONS: Final = ("less", "at_most", "equal", "either", "both")
"""Operations that return a condition, not a number."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A number, or a condition, as an operation on others; equal expressions are the same object.

    Attributes
    ----------
    op : ``constant``, ``variable``, ``add``, ``sub``, ``mul``, ``div``, ``neg``; ``where`` of a condition and two
        numbers; one of `CONDITIONS`; or the name of a function
    args : operands
    text : shortest decimal text of a constant, or name of a variable
    """

    op: str
    args: tuple[Expression, ...] = ()
    text: str = ""

    @property
    def value(self) -> float:
        """The number of a constant."""
        return float(self.text)

    def with_args(self, *args: Expression) -> Expression:
        """Return the same operation on other operands."""
        return _node(self.op, args, self.text)

    def __add__(self, other: Number) -> Expression:
        return node("add", self, as_expression(other))

    def __radd__(self, other: Number) -> Expression:
        return node("add", as_expression(other), self)

    def __sub__(self, other: Number) -> Expression:
        return node("sub", self, as_expression(other))

    def __rsub__(self, other: Number) -> Expression:
        return node("sub", as_expression(other), self)

    def __mul__(self, other: Number) -> Expression:
        return node("mul", self, as_expression(other))

    def __rmul__(self, other: Number) -> Expression:
        return node("mul", as_expression(other), self)

    def __truediv__(self, other: Number) -> Expression:
        return node("div", self, as_expression(other))

    def __rtruediv__(self, other: Number) -> Expression:
        return node("div", as_expression(other), self)

    def __neg__(self) -> Expression:
        return node("neg", self)

    def __lt__(self, other: Number) -> Expression:
        return node("less", self, as_expression(other))

    def __gt__(self, other: Number) -> Expression:
        return node("less", as_expression(other), self)

    def __le__(self, other: Number) -> Expression:
        return node("at_most", self, as_expression(other))

    def __ge__(self, other: Number) -> Expression:
        return node("at_most", as_expression(other), self)

    def __abs__(self) -> Expression:
        return node("abs", self)

    def __pow__(self, power: float) -> Expression:
        from volumetric.formula.numpy_functions import power_of

        return power_of(self, power)

    def __bool__(self) -> bool:
        raise SpecError(
            "a formula has no value while it is defined, so it cannot be a condition",
            hint="choose with numpy.where(x > 0, a, b); for equality write numpy.equal(x, 0)",
        )

    def __float__(self) -> float:
        raise SpecError(
            "a formula has no value while it is defined",
            hint="use numpy.exp(x) and the like, not the functions of math",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Expression:
        from volumetric.formula.numpy_functions import call_numpy

        return call_numpy(ufunc, inputs, options, method)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Expression:
        from volumetric.formula.numpy_functions import call_numpy

        return call_numpy(function, args, options)

    def __or__(self, other: Expression) -> Expression:
        return node("either", self, other)

    def __and__(self, other: Expression) -> Expression:
        return node("both", self, other)


@cache
def _node(op: str, args: tuple[Expression, ...], text: str) -> Expression:
    return Expression(op, args, text)


def node(op: str, *args: Expression) -> Expression:
    """Return the expression of an operation or function."""
    return _node(op, args, "")


def constant(value: float) -> Expression:
    """Return a constant."""
    return _node("constant", (), repr(float(value)))


def variable(name: str) -> Expression:
    """Return a variable, whose value is known when the expression is computed."""
    return _node("variable", (), name)


def variables(names: str) -> tuple[Expression, ...]:
    """Return several variables from names separated by spaces."""
    return tuple(map(variable, names.split()))


def as_expression(value: Number) -> Expression:
    """Return an expression as it is, and a number as a constant."""
    return value if isinstance(value, Expression) else constant(value)


def where(condition: Expression, then: Number, otherwise: Number) -> Expression:
    """`then` where the condition holds, else `otherwise`; comparisons with NaN do not hold."""
    return node("where", condition, as_expression(then), as_expression(otherwise))


def equal(a: Number, b: Number) -> Expression:
    """Whether two numbers are equal; zeros of both signs are, NaN is not."""
    return node("equal", as_expression(a), as_expression(b))


def subexpressions(*of: Expression) -> list[Expression]:
    """Return expressions and all their subexpressions, each once: operands first, conditions last."""
    ordered: dict[Expression, None] = {}

    def visit(each: Expression) -> None:
        if each not in ordered:
            for arg in (*each.args[1:], each.args[0]) if each.op == "where" else each.args:
                visit(arg)
            ordered[each] = None

    for each in of:
        visit(each)
    return list(ordered)


def substitute(of: Expression, by: Mapping[Expression, Expression]) -> Expression:
    """Return an expression with some subexpressions replaced, the largest first."""
    if of in by:
        return by[of]
    return of.with_args(*(substitute(arg, by) for arg in of.args))


def depends_on(of: Expression) -> bool:
    """Whether an expression contains a variable."""
    return any(each.op == "variable" for each in subexpressions(of))
