"""What functions of NumPy, products and indices emit for traced tensors, see `TracedTensor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index as whole
from typing import Any, Final

import numpy as np

from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.traced_tensor import Operand, TracedTensor


def unknown_function(x: TracedTensor, name: str) -> SpecError:
    """Return the error for a function that no graph has."""
    return SpecError(
        f"numpy.{name} cannot be part of {x.work.traces or 'a graph'}",
        hint="supported: " + ", ".join(sorted({*UFUNCS, *FUNCTIONS})),
    )


def matmul(a: TracedTensor, b: Operand) -> TracedTensor:
    """Emit ``a @ b`` for rows ``[…, K]`` and a matrix ``[K, N]``, or for batches of matrices of equal leading axes.

    A product with the transpose of a parameter is the operation that devices run on packed weights.
    """
    work = a.work
    b = b if isinstance(b, TracedTensor) else _as_matrix(a, b)
    if a.ndim < 1 or b.ndim < 2 or a.shape[-1] != b.shape[-2] or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        raise ShapeError(
            f"cannot multiply {list(a.shape)} by {list(b.shape)}",
            hint="a weight [out, in] is multiplied as x @ weight.T" if b.shape[::-1][:1] == a.shape[-1:] else None,
        )
    *lead, k = a.shape
    n = b.shape[-1]
    sampled = a.sampled or b.sampled
    if b.ndim > 2:
        groups = prod(b.shape[:-2])
        product = work.gemm(work.reshape(whole(a), (groups, *a.shape[-2:])), work.reshape(whole(b), (groups, k, n)))
    elif b.transpose_of is not None and a.ndim > 1:
        attrs = {**LINEAR, "parts": (n,), "roles": ("x", "weight.0")}
        product = work.emit_fused("linear", (whole(a), b.transpose_of), **attrs)[0]
    else:
        product = work.gemm(work.reshape(whole(a), (1, prod(lead), k)), work.reshape(whole(b), (1, k, n)))
    return TracedTensor(work, work.reshape(product, (*lead, n)), sampled=sampled)


def _as_matrix(a: TracedTensor, b: Any) -> TracedTensor:
    value = np.asarray(b)
    if value.dtype.kind not in "biuf" or value.ndim != 2:
        raise ShapeError(f"a tensor of shape {list(a.shape)} cannot be multiplied by {b!r:.60}")
    return TracedTensor(a.work, a.work.constant(value + 0.0), sampled=False)


def index(x: TracedTensor, where: Any) -> TracedTensor:
    """Emit ``x[where]`` for whole numbers, slices of step 1 or -1, ``None`` and one ``...``."""
    items = list(where) if isinstance(where, tuple) else [where]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > x.ndim or sum(item is Ellipsis for item in items) > 1:
        raise ShapeError(f"a tensor of shape {list(x.shape)} has no element {_text(where)}")
    rest = [slice(None)] * (x.ndim - used)
    dots = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    items[dots : dots + 1] = rest
    work, shape, new, axis = x.work, x.shape, list[int](), 0
    starts, stops, flips = list[int](), list[int](), list[int]()
    for item in items:
        if item is None:
            new.append(1)
            continue
        start, stop, backwards = _bounds(x, axis, item, where)
        starts.append(start)
        stops.append(stop)
        flips += [axis] * backwards
        if isinstance(item, slice):
            new.append(stop - start)
        axis += 1
    cut = work.slice(whole(x), starts, stops) if any(starts) or tuple(stops) != shape else whole(x)
    for each in flips:
        cut = work.flip(cut, each)
    return TracedTensor(work, work.reshape(cut, new or (1,)), sampled=x.sampled)


def _bounds(x: TracedTensor, axis: int, item: Any, where: Any) -> tuple[int, int, bool]:
    """Return start, stop and whether the axis is reversed."""
    size = x.shape[axis]
    if isinstance(item, slice) and item in (slice(None), slice(None, None, 1), slice(0, None)):
        return 0, size, False
    if x.sampled and axis == 0:
        raise ShapeError(
            f"{_text(where)} cuts the first axis, which counts samples",
            hint="cut another axis: x[:, 0]; a layer sees each sample alone",
        )
    if isinstance(item, slice):
        if item.step not in (None, 1) and (item.step != -1 or item.start is not None or item.stop is not None):
            raise ShapeError(f"{_text(where)}: a slice has step 1, or is [::-1]", hint="reshape, then index")
        start, stop, step = item.indices(size)
        return (0, size, True) if step < 0 else (start, max(start, stop), False)
    try:
        at = whole(item)
    except TypeError:
        at = None
    if at is None or isinstance(item, (bool, TracedTensor)):
        raise ShapeError(f"{_text(where)}: an index is a whole number, a slice, None or ...")
    if not -size <= at < size:
        raise ShapeError(f"{_text(where)} is out of bounds for shape {list(x.shape)}")
    return at % size, at % size + 1, False


def _text(where: Any) -> str:
    return f"the index {where!r:.60}"


def _where(condition: TracedTensor, a: TracedTensor, b: TracedTensor) -> TracedTensor:
    mask = condition.mask()  # a select: NaN of the other does not leak
    return a.combine("mul_nonzero", mask) + b.combine("mul_nonzero", ~mask)


def _logaddexp(a: TracedTensor, b: TracedTensor) -> TracedTensor:
    return a.combine("max", b) + ((-abs(a - b)).apply("exp") + 1).apply("log")


def _concatenate(parts: Sequence[TracedTensor], axis: int = 0) -> TracedTensor:
    first = next(each for each in parts if isinstance(each, TracedTensor))
    tensors = [each if isinstance(each, TracedTensor) else first.lift(each) for each in parts]
    axis %= first.ndim
    sampled = any(each.sampled for each in tensors)
    if sampled and axis == 0:
        raise ShapeError("concatenate would join samples: the first axis counts them", hint="set axis=-1")
    return TracedTensor(first.work, first.work.concat(list(map(whole, tensors)), axis), sampled=sampled)


UFUNCS: Final[dict[str, Callable[..., TracedTensor]]] = {
    **{name: (lambda x, name=name: x.apply(name)) for name in ("exp", "log", "sqrt", "square", "sign", "tanh")},
    **{name: (lambda x, name=name: x.apply(name)) for name in ("sin", "cos", "floor", "reciprocal")},
    "absolute": TracedTensor.__abs__,
    "fabs": TracedTensor.__abs__,
    "negative": lambda x: -x,
    "ceil": lambda x: -((-x).apply("floor")),
    "log1p": lambda x: (x + 1).apply("log"),
    "expm1": lambda x: x.apply("exp") - 1,
    "logaddexp": _logaddexp,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "matmul": matmul,
    "maximum": lambda a, b: a.combine("max", b),
    "minimum": lambda a, b: a.combine("min", b),
    "greater": lambda a, b: a > b,
    "less": lambda a, b: a < b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less_equal": lambda a, b: a <= b,
}
"""Name of an element-wise function of NumPy → what it emits."""
FUNCTIONS: Final[dict[str, Callable[..., TracedTensor]]] = {
    "where": _where,
    "mean": TracedTensor.mean,
    "sum": TracedTensor.sum,
    "max": TracedTensor.max,
    "amax": TracedTensor.max,
    "min": TracedTensor.min,
    "amin": TracedTensor.min,
    "var": TracedTensor.var,
    "clip": TracedTensor.clip,
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x, axes=(): x.transpose(*(axes or ())),
    "concatenate": _concatenate,
}
"""Name of another function of NumPy → what it emits."""
