"""Plain arithmetic on tensors of a graph: operators and NumPy functions emit graph operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeGuard

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph import GraphBuilder

Operand: TypeAlias = "GraphExpression | float | Array"


class GraphExpression:
    """A float32 tensor of a graph that supports arithmetic.

    ``+ - * / **``, ``abs``, comparisons (1 where true, else 0), `mean`, `sum`, `clip` and these functions of NumPy:
    ``abs, exp, log, log1p, sqrt, square, tanh, sin, cos, sign, maximum, minimum, where, mean, sum, clip``. Two tensors
    must have the same number of axes; axes of size 1 are broadcast. Missing leading axes are not added, because that
    would compare each sample with all others.
    """

    __slots__ = ("_i", "_work")
    __hash__ = None  # pyright: ignore[reportAssignmentType]  (== compares elements, as an array's does)

    def __init__(self, work: GraphBuilder, i: int) -> None:
        self._work, self._i = work, i

    @property
    def tensor(self) -> int:
        """Number of the tensor."""
        return self._i

    @property
    def shape(self) -> Shape:
        """Sizes of its axes, samples first."""
        return self._work.shape(self._i)

    @property
    def ndim(self) -> int:
        """Number of its axes."""
        return len(self.shape)

    def mean(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> GraphExpression:
        """Return the mean over axes; None is the last axis. The loss itself takes the mean over samples."""
        return self._over("mean", (-1,) if axis is None else axis, keepdims=keepdims)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> GraphExpression:
        """Return the sum over axes; `axis` is required."""
        if axis is None:
            raise ShapeError(
                "a loss needs a value for each sample: a sum over all axes is not allowed",
                hint='use .sum(-1) to sum over features, and reduction="sum" of the loss to sum over samples',
            )
        return self._over("sum", axis, keepdims=keepdims)

    def clip(self, low: Operand | None = None, high: Operand | None = None) -> GraphExpression:
        """Return the value clipped to bounds."""
        bounded = self if low is None else self._pair("max", low)
        return bounded if high is None else bounded._pair("min", high)

    def __add__(self, other: Operand) -> GraphExpression:
        return self._of(self._work.affine(self._i, 1, other)) if _is_number(other) else self._pair("add", other)

    def __sub__(self, other: Operand) -> GraphExpression:
        return self._of(self._work.affine(self._i, 1, -other)) if _is_number(other) else self._pair("sub", other)

    def __mul__(self, other: Operand) -> GraphExpression:
        return self._of(self._work.affine(self._i, other)) if _is_number(other) else self._pair("mul", other)

    def __truediv__(self, other: Operand) -> GraphExpression:
        return self._pair("div", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Operand) -> GraphExpression:
        return self._lifted(other)._pair("sub", self)

    def __rtruediv__(self, other: Operand) -> GraphExpression:
        return self._lifted(other)._pair("div", self)

    def __neg__(self) -> GraphExpression:
        return self._one("neg")

    def __abs__(self) -> GraphExpression:
        return self._one("abs")

    def __pow__(self, power: Operand) -> GraphExpression:
        if not _is_number(power):
            return (self._one("log") * power)._one("exp")
        if power == 0.5:
            return self._one("sqrt")
        if power < 0:
            return (self ** (-power))._one("reciprocal")
        if power == 2:
            return self._one("square")
        if power % 1 or power > _MOST_FACTORS or not power:
            return (self._one("log") * power)._one("exp")
        product = self
        for _ in range(int(power) - 1):
            product = product * self
        return product

    def __gt__(self, other: Operand) -> GraphExpression:
        return self._pair("greater", other)

    def __lt__(self, other: Operand) -> GraphExpression:
        return self._lifted(other)._pair("greater", self)

    def __ge__(self, other: Operand) -> GraphExpression:
        return 1 - (self < other)

    def __le__(self, other: Operand) -> GraphExpression:
        return 1 - (self > other)

    def __eq__(self, other: object) -> GraphExpression:  # pyright: ignore[reportIncompatibleMethodOverride]  (of elements)
        either: Any = other
        return (1 - (self > either)) * (1 - (self < either))

    def __ne__(self, other: object) -> GraphExpression:  # pyright: ignore[reportIncompatibleMethodOverride]  (of elements)
        return 1 - (self == other)

    def __bool__(self) -> bool:
        raise SpecError(
            "a tensor has no value while the graph of a loss is built, so it cannot be a condition",
            hint="use numpy.where(prediction > target, a, b) to choose for each element",
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> GraphExpression:
        make = _UFUNCS.get(ufunc.__name__)
        if make is None or method != "__call__" or options:
            raise _unknown(ufunc.__name__)
        return make(*(self._lifted(each) for each in inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> GraphExpression:
        make = _FUNCTIONS.get(function.__name__)
        if make is None:
            raise _unknown(function.__name__)
        first, *others = (self._lifted(each) if function is np.where else each for each in args)
        return make(first, *others, **options)

    def _of(self, i: int) -> GraphExpression:
        return GraphExpression(self._work, i)

    def _one(self, name: str) -> GraphExpression:
        return self._of(self._work.unary(self._i, name))

    def _lifted(self, other: Operand) -> GraphExpression:
        """Return an operand as a tensor with the same number of axes."""
        if isinstance(other, GraphExpression):
            return other
        value = np.asarray(other)
        if value.dtype.kind not in "biuf" or value.ndim > self.ndim:
            raise ShapeError(f"a tensor of shape {list(self.shape)} cannot be combined with {other!r:.60}")
        return self._of(self._work.constant(value.reshape((1,) * (self.ndim - value.ndim) + value.shape) + 0.0))

    def _pair(self, name: str, other: Operand) -> GraphExpression:
        other = self._lifted(other)
        if other.ndim != self.ndim:
            raise ShapeError(
                f"shapes {list(self.shape)} and {list(other.shape)} do not match: one lacks an axis",
                hint="use targets of the output's shape: targets[:, None] for one output",
            )
        return self._of(self._work.binary(name, self._i, other._i))

    def _over(self, name: str, axis: int | tuple[int, ...], *, keepdims: bool) -> GraphExpression:
        axes = {i % self.ndim for i in (axis if isinstance(axis, tuple) else (axis,))}
        reduced = self._work.reduce(self._i, name, sorted(axes))
        if not keepdims:
            reduced = self._work.reshape(reduced, [n for i, n in enumerate(self.shape) if i not in axes])
        return self._of(reduced)


_MOST_FACTORS: Final = 8
"""Powers up to this exponent are computed as products."""


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, np.ndarray)


def _unknown(name: str) -> SpecError:
    return SpecError(f"numpy.{name} cannot be part of a loss", hint="supported: " + ", ".join(sorted(_KNOWN)))


def _where(condition: GraphExpression, a: GraphExpression, b: GraphExpression) -> GraphExpression:
    return condition * a + (1 - condition) * b


_UFUNCS: Final[dict[str, Callable[..., GraphExpression]]] = {
    **{name: (lambda x, name=name: x._one(name)) for name in ("exp", "log", "sqrt", "square", "sign", "tanh")},
    **{name: (lambda x, name=name: x._one(name)) for name in ("sin", "cos", "floor", "reciprocal")},
    "absolute": GraphExpression.__abs__,
    "negative": lambda x: -x,
    "log1p": lambda x: (x + 1)._one("log"),
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "maximum": lambda a, b: a._pair("max", b),
    "minimum": lambda a, b: a._pair("min", b),
    "greater": lambda a, b: a > b,
    "less": lambda a, b: a < b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less_equal": lambda a, b: a <= b,
}
_FUNCTIONS: Final[dict[str, Callable[..., GraphExpression]]] = {
    "where": _where,
    "mean": GraphExpression.mean,
    "sum": GraphExpression.sum,
    "clip": GraphExpression.clip,
}
_KNOWN: Final = {*_UFUNCS, *_FUNCTIONS}
