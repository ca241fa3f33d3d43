"""Symbolic derivatives of expressions, in the form a person would write.

A derivative is a sum of products. Factors keep the order of the formula, constants are gathered in front, equal
products are added up, and common factors are factored out: the derivative of ``x σ(x)`` is ``σ (1 + x (1 − σ))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from volumetric.base.errors import UnsupportedError
from volumetric.formula.elementary import DERIVATIVES, EXPANDED
from volumetric.formula.expression import Expression, as_expression, constant, where


@dataclass(frozen=True, slots=True)
class _SymbolicProduct:
    """A constant times factors."""

    by: float
    factors: tuple[Expression, ...] = ()

    def __mul__(self, other: _SymbolicProduct) -> _SymbolicProduct:
        return _SymbolicProduct(self.by * other.by, self.factors + other.factors)

    def expression(self, by: float) -> Expression:
        """Return the product with another constant."""
        return reduce(lambda a, b: a * b, self.factors if by == 1.0 and self.factors else (constant(by), *self.factors))

    def without(self, factors: Sequence[Expression]) -> _SymbolicProduct:
        """Return the product with some factors taken out."""
        left = list(self.factors)
        for each in factors:
            left.remove(each)
        return _SymbolicProduct(self.by, tuple(left))


def derivative(of: Expression, by: Expression) -> Expression:
    """Return the derivative of an expression by a variable.

    Raises
    ------
    UnsupportedError
        The expression has a function without a known derivative.
    """
    return _Differentiator(by).of(of)


def scale_expression(by: Expression, of: Expression) -> Expression:
    """Return a product, omitting a factor of 1, with the sign and the denominator of the second factor outermost."""
    if of.op == "neg":
        return -scale_expression(by, of.args[0])
    if of.op == "div":
        return scale_expression(by, of.args[0]) / of.args[1]
    if of.op == "constant":
        signs: dict[float, Expression] = {0.0: of, 1.0: by, -1.0: -by}
        return signs.get(of.value, of * by)
    return by * of


class _Differentiator:
    """Derivatives by one variable, each computed once."""

    def __init__(self, by: Expression) -> None:
        self.by = by
        self._known: dict[Expression, list[_SymbolicProduct]] = {}

    def of(self, of: Expression) -> Expression:
        """Return a derivative."""
        return _sum(self._terms(of))

    def _terms(self, of: Expression) -> list[_SymbolicProduct]:
        """Products whose sum is the derivative."""
        if of not in self._known:
            sums: dict[tuple[Expression, ...], float] = {}
            for term in self._raw(of):
                sums[term.factors] = sums.get(term.factors, 0.0) + term.by
            self._known[of] = [_SymbolicProduct(by, factors) for factors, by in sums.items() if by]
        return self._known[of]

    def _whole(self, of: Expression) -> _SymbolicProduct | None:
        """A derivative as one product; None if it is 0."""
        terms = self._terms(of)
        if len(terms) > 1:
            return _SymbolicProduct(1.0, (_sum(terms),))
        return terms[0] if terms else None

    def _raw(self, of: Expression) -> list[_SymbolicProduct]:
        if of is self.by:
            return [_SymbolicProduct(1.0)]
        if not of.args:
            return []
        rule: Callable[[Expression], list[_SymbolicProduct]] = getattr(self, f"_{of.op}", self._function)
        return rule(of)

    def _add(self, of: Expression) -> list[_SymbolicProduct]:
        return [*self._terms(of.args[0]), *self._terms(of.args[1])]

    def _sub(self, of: Expression) -> list[_SymbolicProduct]:
        return [*self._terms(of.args[0]), *(_SymbolicProduct(-1.0) * term for term in self._terms(of.args[1]))]

    def _neg(self, of: Expression) -> list[_SymbolicProduct]:
        return [_SymbolicProduct(-1.0) * term for term in self._terms(of.args[0])]

    def _mul(self, of: Expression) -> list[_SymbolicProduct]:
        factors = _factors(of)
        ways = [(at, whole) for at, each in enumerate(factors) if (whole := self._whole(each)) is not None]
        return [_product(factors[:at]) * whole * _product(factors[at + 1 :]) for at, whole in ways]

    def _div(self, of: Expression) -> list[_SymbolicProduct]:
        a, b = of.args
        terms = [_SymbolicProduct(1.0, (self.of(a) / b,))] if self._terms(a) else []
        return [*terms, _SymbolicProduct(-1.0, (of, self.of(b) / b))] if self._terms(b) else terms

    def _where(self, of: Expression) -> list[_SymbolicProduct]:
        condition, a, b = of.args
        if not self._terms(a) and not self._terms(b):
            return []
        return [_SymbolicProduct(1.0, (where(condition, self.of(a), self.of(b)),))]

    def _max(self, of: Expression) -> list[_SymbolicProduct]:
        a, b = of.args
        return self._where(where(b > a, b, a))  # for equal values the first one is taken

    def _min(self, of: Expression) -> list[_SymbolicProduct]:
        a, b = of.args
        return self._where(where(a > b, b, a))

    def _function(self, of: Expression) -> list[_SymbolicProduct]:
        if of.op in EXPANDED and of.op not in DERIVATIVES:
            return self._terms(EXPANDED[of.op](*of.args))
        if of.op not in DERIVATIVES:
            raise UnsupportedError(f"no derivative of {of.op} is known", hint="use one of " + ", ".join(DERIVATIVES))
        outer = _product([as_expression(DERIVATIVES[of.op](of.args[0], of))])
        inner = self._whole(of.args[0])
        if inner is None or not outer.by:
            return []
        # A constant joins the constants in front; any other factor stays whole.
        return [outer * (_SymbolicProduct(1.0, (_sum([inner]),)) if inner.factors else inner)]


def _factors(of: Expression) -> list[Expression]:
    """Factors of a product in their order."""
    return [*_factors(of.args[0]), of.args[1]] if of.op == "mul" else [of]


def _product(factors: Sequence[Expression]) -> _SymbolicProduct:
    """Gather the constants of a product."""
    product = _SymbolicProduct(1.0)
    for each in factors:
        if each.op == "constant":
            product *= _SymbolicProduct(each.value)
        elif each.op == "neg":
            product *= _SymbolicProduct(-1.0) * _product(each.args)
        elif each.op == "mul":
            product *= _product(_factors(each))
        else:
            product *= _SymbolicProduct(1.0, (each,))
    return product


def _sum(terms: Sequence[_SymbolicProduct]) -> Expression:
    """A sum of products, with their common factors factored out."""
    if not terms:
        return constant(0.0)
    shared = list(terms[0].factors) if len(terms) > 1 else []
    for term in terms[1:]:
        left, both = list(term.factors), list[Expression]()
        for each in shared:
            if each in left:
                left.remove(each)
                both.append(each)
        shared = both
    first, *more = (term.without(shared) for term in terms)
    inside = -first.expression(1.0) if first.by == -1.0 and first.factors else first.expression(first.by)
    for term in more:
        inside = inside + term.expression(term.by) if term.by > 0 else inside - term.expression(-term.by)
    return reduce(lambda a, b: a * b, [*shared, inside])
