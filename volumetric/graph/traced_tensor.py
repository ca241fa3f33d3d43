"""Plain arithmetic on tensors of a graph: operators, indexing and NumPy functions emit operations.

Layers and losses of users compute with these. The engine's own code names operations of a `GraphBuilder` instead, with
the numbers of tensors. Both forms may be mixed: a traced tensor is accepted wherever the number of a tensor is, and
a graph builder that traces returns traced tensors.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

Operand: TypeAlias = "TracedTensor | float | Array"
Axes: TypeAlias = "int | tuple[int, ...] | None"
_MOST_FACTORS: Final = 8
"""Powers up to this exponent are computed as products."""


class TracedTensor:
    """A float32 tensor of a graph that supports arithmetic; its values are known only when the graph runs.

    ``+ - * / ** @``, ``abs``, comparisons (1 where true, else 0), indexing with whole numbers, slices, ``None`` and
    ``...``, the methods below, and the functions of NumPy that `traced_functions` lists, mean what they mean for an
    array, with two exceptions. The first axis counts samples or rows, and their number is open (negative): it cannot be
    cut or summed. And a tensor of samples is not broadcast over a missing leading axis, because that would combine each
    sample with all others; parameters, constants and arrays are.

    Parameters
    ----------
    work : the builder of the graph
    i : number of the tensor, which `__index__` returns
    sampled : whether the first axis counts samples; False for what is computed from parameters and constants alone
    """

    __slots__ = ("_i", "_mask", "_sampled", "_transpose_of", "_work")
    __hash__ = None  # pyright: ignore[reportAssignmentType]  (== compares elements, as an array's does)

    def __init__(self, work: GraphBuilder, i: int, *, sampled: bool = True) -> None:
        self._work, self._i, self._sampled = work, int(i), sampled
        self._transpose_of: int | None = None
        self._mask = False

    def __index__(self) -> int:
        return self._i

    def __repr__(self) -> str:
        return f"TracedTensor(shape={self.shape})"

    @property
    def work(self) -> GraphBuilder:
        """The builder of the graph."""
        return self._work

    @property
    def sampled(self) -> bool:
        """Whether the first axis counts samples."""
        return self._sampled

    @property
    def transpose_of(self) -> int | None:
        """Number of the matrix of which this is the transpose."""
        return self._transpose_of

    @property
    def shape(self) -> Shape:
        """Sizes of its axes; an open number of rows is negative, as in ``reshape``."""
        return self._work.shape(self._i)

    @property
    def ndim(self) -> int:
        """Number of its axes."""
        return len(self.shape)

    @property
    def T(self) -> TracedTensor:  # noqa: N802  (NumPy's name)
        """The axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: int) -> TracedTensor:
        """Return the axes in another order; without `axes`, in reverse."""
        order = [i % self.ndim for i in _flat(axes)] or list(range(self.ndim))[::-1]
        turned = self._of(self._work.permute(self._i, order))
        if order == [1, 0]:
            turned._transpose_of = self._i
        return turned

    def reshape(self, *shape: int) -> TracedTensor:
        """Return the same elements in another shape; one size may be -1, also that of an open number of rows."""
        sizes = list(_flat(shape))
        known = prod(n for n in sizes if n >= 0)
        if -1 in sizes and known:
            sizes[sizes.index(-1)] = int(prod(self.shape) / known)
        return self._of(self._work.reshape(self._i, sizes))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> TracedTensor:
        """Return the mean over axes; for a loss, None is the last axis: the loss takes the mean over samples."""
        if axis is None and self._sampled and self._work.traces == "a loss":
            axis = -1
        return self._over("mean", axis, keepdims=keepdims)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> TracedTensor:
        """Return the sum over axes; `axis` is required if the first axis counts samples."""
        return self._over("sum", axis, keepdims=keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> TracedTensor:
        """Return the maximum over axes; `axis` is required if the first axis counts samples."""
        return self._over("max", axis, keepdims=keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> TracedTensor:
        """Return the minimum over axes; `axis` is required if the first axis counts samples."""
        return -(-self).max(axis, keepdims)

    def var(self, axis: Axes = None, keepdims: bool = False) -> TracedTensor:
        """Return the variance over axes, divided by the number of elements."""
        return (self - self.mean(axis, keepdims=True)).apply("square").mean(axis, keepdims)

    def clip(self, low: Operand | None = None, high: Operand | None = None) -> TracedTensor:
        """Return the value clipped to bounds."""
        bounded = self if low is None else self.combine("max", low)
        return bounded if high is None else bounded.combine("min", high)

    def __getitem__(self, where: Any) -> TracedTensor:
        from volumetric.graph.traced_functions import index

        return index(self, where)

    def __add__(self, other: Operand) -> TracedTensor:
        return self._of(self._work.affine(self._i, 1, other)) if _is_number(other) else self.combine("add", other)

    def __sub__(self, other: Operand) -> TracedTensor:
        return self._of(self._work.affine(self._i, 1, -other)) if _is_number(other) else self.combine("sub", other)

    def __mul__(self, other: Operand) -> TracedTensor:
        return self._of(self._work.affine(self._i, other)) if _is_number(other) else self.combine("mul", other)

    def __truediv__(self, other: Operand) -> TracedTensor:
        return self.combine("div", other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Operand) -> TracedTensor:
        return self.lift(other).combine("sub", self)

    def __rtruediv__(self, other: Operand) -> TracedTensor:
        return self.lift(other).combine("div", self)

    def __matmul__(self, other: Operand) -> TracedTensor:
        from volumetric.graph.traced_functions import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: Operand) -> TracedTensor:
        return self.lift(other) @ self

    def __neg__(self) -> TracedTensor:
        return self.apply("neg")

    def __abs__(self) -> TracedTensor:
        return self.apply("abs")

    def __pow__(self, power: Operand) -> TracedTensor:
        if not _is_number(power):
            return (self.apply("log") * power).apply("exp")
        if power == 0.5:
            return self.apply("sqrt")
        if power < 0:
            return (self ** (-power)).apply("reciprocal")
        if power == 2:
            return self.apply("square")
        if power % 1 or power > _MOST_FACTORS or not power:
            return (self.apply("log") * power).apply("exp")
        product = self
        for _ in range(int(power) - 1):
            product = product * self
        return product

    def __rpow__(self, base: Operand) -> TracedTensor:
        return (self * np.log(base)).apply("exp")

    def __gt__(self, other: Operand) -> TracedTensor:
        return self.combine("greater", other)._as_mask()

    def __lt__(self, other: Operand) -> TracedTensor:
        return self.lift(other).combine("greater", self)._as_mask()

    def __ge__(self, other: Operand) -> TracedTensor:
        return ~(self < other)

    def __le__(self, other: Operand) -> TracedTensor:
        return ~(self > other)

    def __eq__(self, other: object) -> TracedTensor:  # pyright: ignore[reportIncompatibleMethodOverride]  (of elements)
        either: Any = other
        return ~(self > either) & ~(self < either)

    def __ne__(self, other: object) -> TracedTensor:  # pyright: ignore[reportIncompatibleMethodOverride]  (of elements)
        return ~(self == other)

    def __and__(self, other: TracedTensor) -> TracedTensor:
        return (self.mask() * other.mask())._as_mask()

    def __or__(self, other: TracedTensor) -> TracedTensor:
        return self.mask().combine("max", other.mask())._as_mask()

    def __invert__(self) -> TracedTensor:
        return (1 - self.mask())._as_mask()

    def mask(self) -> TracedTensor:
        """Return 1 where the value is not 0, else 0; a comparison is returned as it is."""
        return self if self._mask else (abs(self) > 0)

    def __bool__(self) -> bool:
        raise SpecError(
            f"a tensor has no value while the graph of {self._work.traces or 'a network'} is built, so it cannot be a "
            "condition",
            hint="use numpy.where(prediction > target, a, b) to choose for each element",
        )

    def __float__(self) -> float:
        raise SpecError(
            f"a tensor has no value while the graph of {self._work.traces or 'a network'} is built",
            hint="compute with operators and the functions of NumPy, such as numpy.exp(x), not with those of math",
        )

    def __iter__(self) -> Any:
        raise SpecError("a tensor of a graph is not a sequence", hint="index it: x[:, 0]")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> TracedTensor:
        from volumetric.graph.traced_functions import UFUNCS, unknown_function

        make = UFUNCS.get(ufunc.__name__)
        if make is None or method != "__call__" or options:
            raise unknown_function(self, ufunc.__name__)
        return make(*(self.lift(each) for each in inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> TracedTensor:
        from volumetric.graph.traced_functions import FUNCTIONS, unknown_function

        make = FUNCTIONS.get(function.__name__)
        if make is None:
            raise unknown_function(self, function.__name__)
        first, *others = (self.lift(each) if function is np.where else each for each in args)
        return make(first, *others, **options)

    def _of(self, i: int, *others: TracedTensor) -> TracedTensor:
        return TracedTensor(self._work, i, sampled=self._sampled or any(each._sampled for each in others))

    def apply(self, name: str) -> TracedTensor:
        """Return an activation, or another function of one number, of each element: ``x.apply("silu")``."""
        return self._of(self._work.unary(self._i, name))

    def lift(self, other: Operand) -> TracedTensor:
        """Return an operand as a tensor of the same graph."""
        if isinstance(other, TracedTensor):
            return other
        value = np.asarray(other)
        if value.dtype.kind not in "biuf" or value.ndim > self.ndim:
            raise ShapeError(f"a tensor of shape {list(self.shape)} cannot be combined with {other!r:.60}")
        whole = value.reshape((1,) * (self.ndim - value.ndim) + value.shape)
        return TracedTensor(self._work, self._work.constant(whole + 0.0), sampled=False)

    def combine(self, name: str, other: Operand) -> TracedTensor:
        """Return a function of two numbers, by its name in the operation ``binary``, of each pair of elements."""
        other = self.lift(other)
        axes = max(self.ndim, other.ndim)
        a, b = self._with_axes(axes), other._with_axes(axes)
        if a is None or b is None:
            raise ShapeError(
                f"shapes {list(self.shape)} and {list(other.shape)} do not match: one lacks an axis",
                hint="use targets of the output's shape: targets[:, None] for one output"
                if self._work.traces == "a loss"
                else "keep the axis that was reduced: x.mean(-1, keepdims=True)",
            )
        return self._of(self._work.binary(name, a._i, b._i), other)

    def _as_mask(self) -> TracedTensor:
        self._mask = True
        return self

    def _with_axes(self, axes: int) -> TracedTensor | None:
        """Return the tensor with leading axes of size 1; None if they are missing before samples."""
        missing = axes - self.ndim
        if missing and self._sampled:
            return None
        return self._of(self._work.reshape(self._i, ((1,) * missing + self.shape)))

    def _over(self, name: str, axis: Axes, *, keepdims: bool) -> TracedTensor:
        if axis is None and self._sampled:
            loss = self._work.traces == "a loss"
            raise ShapeError(
                f"a loss needs a value for each sample: a {name} over all axes is not allowed"
                if loss
                else f"a {name} over all axes would mix the samples",
                hint=f"use .{name}(-1) for the {name} over features"
                + (', and reduction="sum" of the loss to sum over samples' if loss else ""),
            )
        chosen = range(self.ndim) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
        if not all(-self.ndim <= i < self.ndim for i in chosen):
            raise ShapeError(f"a tensor of shape {list(self.shape)} has no axis {axis}")
        axes = {i % self.ndim for i in chosen}
        reduced = self._work.reduce(self._i, name, sorted(axes))
        left = [n for i, n in enumerate(self.shape) if i not in axes]
        return self._of(reduced if keepdims or not left else self._work.reshape(reduced, left))


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, np.ndarray)


def _flat(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the arguments of a method that takes several numbers or one sequence of them."""
    return tuple(values[0]) if len(values) == 1 and not isinstance(values[0], int) else values
