"""Operators on known arrays, in NumPy: arithmetic on shapes and constants, exact for 64-bit integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.loaders.onnx_import.onnx_declaration import is_floating, is_whole
from volumetric.loaders.onnx_import.onnx_types import dtype_of_code

if TYPE_CHECKING:
    from volumetric.loaders.onnx_import.node_call import NodeCall

Fold = Callable[..., Any]
_MOST = 1 << 24


def cast_array(x: Array, dtype: np.dtype) -> Array:
    """Cast as ONNX does: fractions are cut off, and a number that is not 0 is true."""
    if x.dtype.kind in "OSU" or dtype.kind in "OSU":
        raise UnsupportedError("ONNX: casts from and to text are not supported")
    if dtype.kind == "b":
        return x != 0
    if is_whole(dtype) and is_floating(x.dtype):
        return np.trunc(np.nan_to_num(x.astype(np.float64))).astype(np.int64).astype(dtype)
    return x.astype(dtype)


def divide(a: Array, b: Array) -> Array:
    """Quotient; of integers the one towards 0."""
    if not is_whole(a.dtype):
        return a / b
    if (b == 0).any():
        raise ShapeError("ONNX: a division of integers by 0")
    quotient = np.abs(a) // np.abs(b)
    return (np.sign(a) * np.sign(b) * quotient).astype(a.dtype) if a.dtype.kind == "i" else (a // b).astype(a.dtype)


def slice_bounds(size: int, start: int, stop: int, step: int) -> tuple[int, int, int]:
    """Return the bounds of a slice as Python's `range` takes them."""
    return slice(start, stop, step).indices(size)


def _slice(call: NodeCall, x: Array, *bounds: Array | None) -> Array:
    for axis, start, stop, step in slices_of(call, x.shape, *bounds):
        x = x.take(np.arange(*slice_bounds(x.shape[axis], start, stop, step)), axis)
    return x


def slices_of(
    call: NodeCall, shape: tuple[int, ...], starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> list[tuple[int, int, int, int]]:
    """Return axis, start, stop and step of each slice, from inputs or, before opset 10, from attributes."""
    starts = call.numbers("starts") if starts is None else starts.reshape(-1).tolist()
    ends = call.numbers("ends") if ends is None else ends.reshape(-1).tolist()
    axes = call.numbers("axes") if axes is None else axes.reshape(-1).tolist()
    starts, ends = starts or (), ends or ()
    steps = [1] * len(starts) if steps is None else steps.reshape(-1).tolist()
    axes = range(len(starts)) if axes is None else axes
    if 0 in steps:
        raise ShapeError(f"{call.label}: a step of 0")
    rows = zip(axes, starts, ends, steps, strict=True)
    return [(call.axis(int(a), len(shape)), int(b), int(e), int(s)) for a, b, e, s in rows]


def _sizes(call: NodeCall, shape: Any) -> tuple[int, ...]:
    """Return sizes that are not negative, of at most 2⁴⁰ elements."""
    sizes = tuple(int(n) for n in np.asarray(shape).reshape(-1))
    if min(sizes, default=0) < 0 or math.prod(sizes) > 1 << 40:
        raise ShapeError(f"{call.label}: a constant of shape {list(sizes)}")
    return sizes


def _sized(call: NodeCall, shape: Any) -> tuple[int, ...]:
    """Return sizes of at most `_MOST` elements."""
    sizes = _sizes(call, shape)
    if math.prod(sizes) > _MOST:
        raise UnsupportedError(f"{call.label}: a constant of shape {list(sizes)} is too large")
    return sizes


def target_shape(call: NodeCall, shape: tuple[int, ...], wanted: Any, size: int) -> tuple[int, ...]:
    """Return the shape that `Reshape` gives: 0 keeps a size, -1 is what is left."""
    wanted = [int(n) for n in np.asarray(wanted).reshape(-1)]
    if not call.attribute("allowzero", 0):
        if any(n == 0 and i >= len(shape) for i, n in enumerate(wanted)):
            raise ShapeError(f"{call.label}: 0 keeps a size, but {list(shape)} has no such axis")
        wanted = [shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    rest = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
    if wanted.count(-1) > 1 or min(wanted, default=0) < -1 or (-1 in wanted and (rest == 0 or size % rest)):
        raise ShapeError(f"{call.label}: cannot reshape {list(shape)} to {wanted}")
    whole = tuple(size // rest if n == -1 else n for n in wanted)
    if int(np.prod(whole, dtype=np.int64)) != size:
        raise ShapeError(f"{call.label}: cannot reshape {list(shape)} to {wanted}")
    return whole


def _unsqueeze(call: NodeCall, x: Array, axes: Array | None = None) -> Array:
    return x.reshape(unsqueezed(call, x.shape, call.numbers("axes") if axes is None else tuple(axes.reshape(-1))))


def unsqueezed(call: NodeCall, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return a shape with axes of size 1 inserted."""
    rank = len(shape) + len(axes or ())
    at = {call.axis(int(axis), rank) for axis in axes or ()}
    sizes = iter(shape)
    return tuple(1 if i in at else next(sizes) for i in range(rank))


def squeezed(call: NodeCall, shape: tuple[int, ...], axes: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return a shape without axes of size 1."""
    at = (
        {call.axis(int(axis), len(shape)) for axis in axes}
        if axes is not None
        else {i for i, n in enumerate(shape) if n == 1}
    )
    if any(shape[i] != 1 for i in at):
        raise ShapeError(f"{call.label}: cannot squeeze axes {sorted(at)} of {list(shape)}")
    return tuple(n for i, n in enumerate(shape) if i not in at)


def _squeeze(call: NodeCall, x: Array, axes: Array | None = None) -> Array:
    return x.reshape(squeezed(call, x.shape, call.numbers("axes") if axes is None else tuple(axes.reshape(-1))))


def _gather(call: NodeCall, x: Array, indices: Array) -> Array:
    return x.take(indices, call.axis(call.attribute("axis", 0), x.ndim))


def _constant(call: NodeCall) -> Array:
    for name, dtype in (("value_int", np.int64), ("value_float", np.float32)):
        if name in call.attributes:
            return np.asarray(call.attributes[name], dtype)
    for name, dtype in (("value_ints", np.int64), ("value_floats", np.float32)):
        if name in call.attributes:
            return np.asarray(call.attributes[name] or (), dtype)
    if not isinstance(call.attribute("value"), np.ndarray):
        raise call.refuse("a constant of this kind")
    return call.attribute("value")


def _constant_of_shape(call: NodeCall, shape: Array) -> Array:
    value = call.attribute("value", np.zeros(1, np.float32))
    return np.broadcast_to(value.reshape(-1)[0], _sizes(call, shape))  # a view, however large


def _expand(call: NodeCall, x: Array, shape: Array) -> Array:
    whole = np.broadcast_shapes(x.shape, tuple(int(n) for n in shape.reshape(-1)))
    return np.broadcast_to(x, _sizes(call, whole))


def _range(call: NodeCall, start: Array, stop: Array, step: Array) -> Array:
    start, stop, step = (v.reshape(-1)[0] for v in (start, stop, step))
    if step == 0:
        raise ShapeError(f"{call.label}: a step of 0")
    count = max(int(np.ceil((np.float64(stop) - np.float64(start)) / np.float64(step))), 0)
    [count] = _sized(call, [count])
    return (start + np.arange(count) * step).astype(start.dtype)


def _shape(call: NodeCall, x: Array) -> Array:
    return shape_of(call, x.shape)


def shape_of(call: NodeCall, shape: tuple[int, ...]) -> Array:
    """Return what `Shape` gives."""
    return np.array(shape, np.int64)[call.attribute("start", 0) : call.attribute("end")]


def _split(call: NodeCall, x: Array, sizes: Array | None = None) -> list[Array]:
    axis = call.axis(call.attribute("axis", 0), x.ndim)
    parts = split_sizes(call, x.shape[axis], None if sizes is None else sizes.reshape(-1).tolist())
    return np.split(x, np.cumsum(parts)[:-1], axis)


def split_sizes(call: NodeCall, size: int, sizes: Any) -> list[int]:
    """Return the sizes of the parts of `Split`."""
    sizes = call.numbers("split") if sizes is None else sizes
    if sizes is None:
        parts = call.attribute("num_outputs", len(call.node.outputs))
        whole = -(-size // parts)
        sizes = [max(min(whole, size - i * whole), 0) for i in range(parts)]
    if sum(sizes) != size:
        raise ShapeError(f"{call.label}: parts of {list(sizes)} are not {size} elements")
    return [int(n) for n in sizes]


def _reduce(function: Callable[..., Any]) -> Fold:
    def fold(call: NodeCall, x: Array, axes: Array | None = None) -> Array:
        chosen = call.numbers("axes") if axes is None else tuple(axes.reshape(-1).tolist())
        if not chosen:
            if call.attribute("noop_with_empty_axes", 0):
                return x
            chosen = tuple(range(x.ndim))
        chosen = tuple(call.axis(int(axis), x.ndim) for axis in chosen)
        return np.asarray(function(x, axis=chosen, keepdims=bool(call.attribute("keepdims", 1)))).astype(x.dtype)

    return fold


def _pair(function: Callable[..., Any]) -> Fold:
    return lambda call, a, b: np.asarray(function(a, b))


def _chain(function: Callable[..., Any]) -> Fold:
    def fold(call: NodeCall, first: Array, *others: Array) -> Array:
        for other in others:
            first = function(first, other)
        return np.asarray(first)

    return fold


def _one(function: Callable[..., Any]) -> Fold:
    return lambda call, x: np.asarray(function(x)).astype(x.dtype)


def _mod(call: NodeCall, a: Array, b: Array) -> Array:
    return np.fmod(a, b) if call.attribute("fmod", 0) else np.mod(a, b)


def _transpose(call: NodeCall, x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(call.numbers("perm") or tuple(reversed(range(x.ndim)))))


def _scatter_nd(call: NodeCall, x: Array, indices: Array, updates: Array) -> Array:
    if call.attribute("reduction", "none") != "none":
        raise call.refuse("a reduction of constants")
    x = x.copy()
    x[tuple(np.moveaxis(indices, -1, 0))] = updates
    return x


def _trilu(call: NodeCall, x: Array, k: Array | None = None) -> Array:
    return (np.triu if call.attribute("upper", 1) else np.tril)(x, 0 if k is None else int(k.reshape(-1)[0]))


def _eye_like(call: NodeCall, x: Array) -> Array:
    dtype = dtype_of_code(call.attribute("dtype")) if call.attribute("dtype") else x.dtype
    return np.eye(*x.shape, k=call.attribute("k", 0)).astype(dtype)


def _compress(call: NodeCall, x: Array, condition: Array) -> Array:
    axis = call.attribute("axis")
    return np.compress(condition, x, axis)


def _nonzero(call: NodeCall, x: Array) -> Array:
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


def _bit_shift(call: NodeCall, a: Array, b: Array) -> Array:
    return a << b if call.attribute("direction") == "LEFT" else a >> b


def _top_k(call: NodeCall, x: Array, k: Array | None = None) -> list[Array]:
    count = int(call.attribute("k") if k is None else k.reshape(-1)[0])
    axis = call.axis(call.attribute("axis", -1), x.ndim)
    sign = -1 if call.attribute("largest", 1) else 1
    order = np.argsort(sign * x.astype(np.float64 if is_floating(x.dtype) else np.int64), axis, kind="stable")
    order = order.take(np.arange(count), axis)
    return [np.take_along_axis(x, order, axis), order]


def _unique(call: NodeCall, x: Array) -> list[Array]:
    axis = call.attribute("axis")
    values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        values = values.take(order, 0 if axis is None else axis)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return [values, *(v.astype(np.int64) for v in (first, inverse, counts))]


FOLDS: Final[dict[str, Fold]] = {
    "Constant": _constant,
    "Identity": lambda call, x: x,
    "Cast": lambda call, x: cast_array(x, dtype_of_code(call.attribute("to"))),
    "CastLike": lambda call, x, like: cast_array(x, like.dtype),
    "Shape": _shape,
    "Size": lambda call, x: np.array(x.size, np.int64),
    "Gather": _gather,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": lambda call, x, shape: x.reshape(target_shape(call, x.shape, shape, x.size)),
    "Concat": lambda call, *parts: np.concatenate(parts, call.axis(call.attribute("axis", 1), parts[0].ndim)),
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Range": _range,
    "Split": _split,
    "Transpose": _transpose,
    "Tile": lambda call, x, n: np.tile(x, _sized(call, n)),
    "Add": _pair(np.add),
    "Sub": _pair(np.subtract),
    "Mul": _pair(np.multiply),
    "Div": lambda call, a, b: divide(a, b),
    "Pow": lambda call, a, b: np.power(a, b).astype(a.dtype),
    "Mod": _mod,
    "Max": _chain(np.maximum),
    "Min": _chain(np.minimum),
    "Sum": _chain(np.add),
    "Equal": _pair(np.equal),
    "Greater": _pair(np.greater),
    "Less": _pair(np.less),
    "GreaterOrEqual": _pair(np.greater_equal),
    "LessOrEqual": _pair(np.less_equal),
    "And": _pair(np.logical_and),
    "Or": _pair(np.logical_or),
    "Xor": _pair(np.logical_xor),
    "Not": lambda call, x: ~x,
    "BitwiseAnd": _pair(np.bitwise_and),
    "BitwiseOr": _pair(np.bitwise_or),
    "BitwiseXor": _pair(np.bitwise_xor),
    "BitwiseNot": lambda call, x: ~x,
    "BitShift": _bit_shift,
    "Where": lambda call, c, a, b: np.where(c, a, b),
    "Neg": _one(np.negative),
    "Abs": _one(np.abs),
    "Sign": _one(np.sign),
    "Floor": _one(np.floor),
    "Ceil": _one(np.ceil),
    "Round": _one(np.rint),
    "Sqrt": _one(np.sqrt),
    "Exp": _one(np.exp),
    "Log": _one(np.log),
    "Sin": _one(np.sin),
    "Cos": _one(np.cos),
    "Reciprocal": _one(np.reciprocal),
    "IsNaN": lambda call, x: np.isnan(x),
    "ReduceSum": _reduce(np.sum),
    "ReduceProd": _reduce(np.prod),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceMean": _reduce(np.mean),
    "NonZero": _nonzero,
    "ScatterND": _scatter_nd,
    "Trilu": _trilu,
    "EyeLike": _eye_like,
    "Compress": _compress,
    "TopK": _top_k,
    "Unique": _unique,
}
"""Operator → function of its node and its arrays; an input that is left out is None."""
