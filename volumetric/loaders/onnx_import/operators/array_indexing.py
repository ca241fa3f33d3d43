"""Lookups and writes by index, and the choice of elements."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, known_value
from volumetric.loaders.onnx_import.operators.operator_table import operator

_INT64 = np.dtype(np.int64)
_MOST_RANKED = 4096
"""Elements of a row that `TopK` ranks: every pair of them is compared."""


def one_hot(call: NodeCall, indices: int, size: int) -> int:
    """Emit ``[n, size]`` of ``[n]`` whole numbers: 1 where the column is the number, from behind if it is negative."""
    work = call.work
    [count] = work.shape(indices)
    column = work.reshape(indices, (count, 1))
    below = call.pair("greater", work.scalar(0.0), column)
    column = work.binary("add", column, work.affine(below, float(size)))
    return call.equal(column, work.constant(np.arange(size, dtype=np.float64).reshape(1, size)))


@operator("Gather")
def _gather(call: NodeCall, x: OnnxValue, indices: OnnxValue) -> OnnxValue:
    work, table = call.work, call.tensor(x)
    axis = call.axis(call.attribute("axis", 0), len(x.shape))
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    if indices.array is not None:
        return call.result(call.take(table, axis, indices.array), x.dtype, shape)
    before, size, after = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
    count = indices.size
    rows = work.reshape(work.permute(work.reshape(table, (before, size, after)), (1, 0, 2)), (size, before * after))
    if indices.ids is not None:
        picked = work.gather_rows(rows, work.reshape(indices.ids, (count,)))
    else:
        hot = one_hot(call, work.reshape(call.tensor(indices), (count,)), size)
        picked = _product(call, hot, rows)
    picked = work.permute(work.reshape(picked, (count, before, after)), (1, 0, 2))
    return call.result(picked, x.dtype, shape)


def _product(call: NodeCall, a: int, b: int) -> int:
    """Emit the product of two matrices."""
    work = call.work
    (m, k), (_, n) = work.shape(a), work.shape(b)
    return work.reshape(work.gemm(work.reshape(a, (1, m, k)), work.reshape(b, (1, k, n))), (m, n))


def _take_flat(call: NodeCall, x: OnnxValue, flat: Array, shape: Shape) -> OnnxValue:
    tensor = call.take(call.work.reshape(call.tensor(x), (x.size,)), 0, flat)
    return call.result(tensor, x.dtype, shape)


def _flat_of_elements(call: NodeCall, shape: Shape, indices: Array, axis: int) -> Array:
    """Return the flat indices that `GatherElements` means."""
    size = shape[axis]
    if ((indices < -size) | (indices >= size)).any():
        raise ShapeError(f"{call.label}: an index is out of bounds for {size} elements")
    places: list[Any] = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + size, indices)
    return np.asarray(np.ravel_multi_index(places, shape))


def _flat_of_rows(call: NodeCall, shape: Shape, indices: Array, lead: int = 0) -> Array:
    """Return the flat indices that `GatherND` means, ``[…, elements of a row]``."""
    depth = indices.shape[-1]
    sizes = shape[lead : lead + depth]
    places = [np.where(i < 0, i + n, i) for i, n in zip(np.moveaxis(indices, -1, 0), sizes, strict=True)]
    if any(((i < 0) | (i >= n)).any() for i, n in zip(places, sizes, strict=True)):
        raise ShapeError(f"{call.label}: an index is out of bounds for shape {list(shape)}")
    batch = list(np.indices(indices.shape[:-1]))[:lead]
    width = prod(shape[lead + depth :])
    start: Any = np.ravel_multi_index([*batch, *places], shape[: lead + depth]) if lead + depth else np.zeros((), int)
    return (start * width)[..., None] + np.arange(width)


@operator("GatherElements")
def _gather_elements(call: NodeCall, x: OnnxValue, indices: OnnxValue) -> OnnxValue:
    axis = call.axis(call.attribute("axis", 0), len(x.shape))
    if indices.array is not None:
        return _take_flat(call, x, _flat_of_elements(call, x.shape, indices.array, axis), indices.shape)
    work = call.work
    others = [i for i in range(len(x.shape)) if i != axis]
    if any(x.shape[i] != indices.shape[i] for i in others):
        raise call.refuse("a lookup of other sizes by indices that are computed")
    last = len(x.shape) - 1
    table = call.move_axis(call.tensor(x), axis, last)
    index = call.move_axis(call.tensor(indices), axis, last)
    *lead, size = work.shape(table)
    count = work.shape(index)[-1]
    hot = one_hot(call, work.reshape(index, (prod(lead) * count,)), size)
    hot = work.reshape(hot, (prod(lead), count, size))
    spread = call.pair("mul_nonzero", work.reshape(table, (prod(lead), 1, size)), hot)
    picked = work.reshape(work.reduce(spread, "sum", (2,)), (*lead, count))
    return call.result(call.move_axis(picked, last, axis), x.dtype, indices.shape)


@operator("GatherND", static=(1,))
def _gather_nd(call: NodeCall, x: OnnxValue, indices: OnnxValue) -> OnnxValue:
    lead = call.attribute("batch_dims", 0)
    index = call.array(indices, "the indices")
    flat = _flat_of_rows(call, x.shape, index, lead)
    return _take_flat(call, x, flat, (*index.shape[:-1], *x.shape[lead + index.shape[-1] :]))


def _write(call: NodeCall, x: OnnxValue, updates: OnnxValue, flat: Array) -> OnnxValue:
    """Emit `x` with elements replaced, or added, at known places; the last of equal places wins."""
    work, how = call.work, call.attribute("reduction", "none")
    flat = flat.reshape(-1)
    base, new = work.reshape(call.tensor(x), (x.size,)), work.reshape(call.tensor(updates), (updates.size,))
    if how == "none":
        source = np.arange(x.size)
        source[flat] = x.size + np.arange(len(flat))
        return call.result(call.take(work.concat([base, new], 0), 0, source), x.dtype, x.shape)
    if how == "add":
        ids = work.constant(flat.astype(np.int32), "indices")
        total = work.scatter_rows(work.reshape(new, (len(flat), 1)), ids, x.size)
        return call.result(work.add(base, work.reshape(total, (x.size,))), x.dtype, x.shape)
    function = {"mul": "mul", "max": "max", "min": "min"}[how]
    turn = np.zeros(len(flat), int)  # the n-th write to the same place
    seen: dict[int, int] = {}
    for i, place in enumerate(flat.tolist()):
        turn[i] = seen.get(place, 0)
        seen[place] = turn[i] + 1
    for n in range(int(turn.max(initial=-1)) + 1):
        at = np.flatnonzero(turn == n)
        source = np.arange(x.size)
        source[flat[at]] = x.size + np.arange(len(at))
        changed = work.binary(function, call.take(base, 0, flat[at]), call.take(new, 0, at))
        base = call.take(work.concat([base, changed], 0), 0, source)
    return call.result(base, x.dtype, x.shape)


@operator("ScatterElements", "Scatter", static=(1,))
def _scatter_elements(call: NodeCall, x: OnnxValue, indices: OnnxValue, updates: OnnxValue) -> OnnxValue:
    axis = call.axis(call.attribute("axis", 0), len(x.shape))
    return _write(call, x, updates, _flat_of_elements(call, x.shape, call.array(indices, "the indices"), axis))


@operator("ScatterND", static=(1,))
def _scatter_nd(call: NodeCall, x: OnnxValue, indices: OnnxValue, updates: OnnxValue) -> OnnxValue:
    return _write(call, x, updates, _flat_of_rows(call, x.shape, call.array(indices, "the indices")))


@operator("OneHot", static=(1,))
def _one_hot(call: NodeCall, indices: OnnxValue, depth: OnnxValue, values: OnnxValue) -> OnnxValue:
    work, size = call.work, int(call.number(depth, "the depth"))
    rank = len(indices.shape) + 1
    axis = call.axis(call.attribute("axis", -1), rank)
    hot = one_hot(call, work.reshape(call.tensor(indices), (indices.size,)), size)
    ends = call.tensor(values)
    off, on = work.part(ends, 0, 0, 1), work.part(ends, 0, 1, 2)
    hot = call.pair("add", call.pair("mul", hot, work.binary("sub", on, off)), off)
    hot = work.reshape(hot, (*indices.shape, size))
    return call.result(call.move_axis(hot, rank - 1, axis), values.dtype)


@operator("Compress", static=(1,))
def _compress(call: NodeCall, x: OnnxValue, condition: OnnxValue) -> OnnxValue:
    chosen = np.flatnonzero(call.array(condition, "the condition"))
    axis = call.attribute("axis")
    if axis is None:
        return _take_flat(call, x, chosen, (len(chosen),))
    return call.result(call.take(call.tensor(x), call.axis(axis, len(x.shape)), chosen), x.dtype)


def first_of(call: NodeCall, marks: int) -> int:
    """Emit the index of the first 1 of each row ``[R, W]``, as ``[R, 1]``."""
    work = call.work
    width = work.shape(marks)[1]
    falling = work.constant(np.arange(width, 0, -1, dtype=np.float64).reshape(1, width))
    return work.affine(work.reduce(call.pair("mul", marks, falling), "max", (1,)), -1.0, float(width))


@operator("ArgMax", "ArgMin")
def _arg_max(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work = call.work
    axis = call.axis(call.attribute("axis", 0), len(x.shape))
    from_behind = bool(call.attribute("select_last_index", 0))

    def emit(rows: int) -> int:
        rows = work.unary(rows, "neg") if call.node.op == "ArgMin" else rows
        rows = work.flip(rows, 1) if from_behind else rows
        index = first_of(call, call.equal(rows, work.reduce(rows, "max", (1,))))
        return work.affine(index, -1.0, work.shape(rows)[1] - 1.0) if from_behind else index

    y = call.along_last(call.tensor(x), axis, emit)
    shape = work.shape(y) if call.attribute("keepdims", 1) else (*x.shape[:axis], *x.shape[axis + 1 :])
    return call.result(y, _INT64, shape)


@operator("Hardmax")
def _hardmax(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work = call.work
    axis = call.axis(call.attribute("axis", 1 if call.opset < 13 else -1), len(x.shape))

    def emit(rows: int) -> int:
        index = first_of(call, call.equal(rows, work.reduce(rows, "max", (1,))))
        return one_hot(call, work.reshape(index, (work.shape(rows)[0],)), work.shape(rows)[1])

    if call.opset < 13:
        rows = work.reshape(call.tensor(x), (prod(x.shape[:axis]), prod(x.shape[axis:])))
        return call.result(emit(rows), x.dtype, x.shape)
    return call.result(call.along_last(call.tensor(x), axis, emit), x.dtype, x.shape)


@operator("TopK", static=(1,))
def _top_k(call: NodeCall, x: OnnxValue, k: OnnxValue | None = None) -> list[OnnxValue]:
    """Emit the k largest elements in falling order: the rank of each is the number of those before it."""
    work = call.work
    axis = call.axis(call.attribute("axis", -1), len(x.shape))
    count = int(call.attribute("k") if k is None else call.number(k, "k"))
    size = x.shape[axis]
    if size > _MOST_RANKED:
        raise call.refuse(f"a choice among {size} elements", hint=f"at most {_MOST_RANKED} are ranked")
    if not 0 < count <= size:
        raise ShapeError(f"{call.label}: k = {count} of {size} elements")
    chosen: dict[str, int] = {}

    def emit(rows: int) -> int:
        many = work.shape(rows)[0]
        signed = rows if call.attribute("largest", 1) else work.unary(rows, "neg")
        column, row = work.reshape(signed, (many, size, 1)), work.reshape(signed, (many, 1, size))
        earlier = work.constant(np.tril(np.ones((size, size)), -1)[None])
        ahead = work.add(call.pair("greater", row, column), call.pair("mul", call.equal(column, row), earlier))
        rank = work.reshape(work.reduce(ahead, "sum", (2,)), (many, 1, size))
        places = work.constant(np.arange(count, dtype=np.float64).reshape(1, count, 1))
        hot = call.equal(rank, places)
        index = work.constant(np.arange(size, dtype=np.float64).reshape(1, 1, size))
        chosen["index"] = work.reshape(work.reduce(call.pair("mul", hot, index), "sum", (2,)), (many, count))
        picked = call.pair("mul_nonzero", work.reshape(rows, (many, 1, size)), hot)
        return work.reshape(work.reduce(picked, "sum", (2,)), (many, count))

    values = call.along_last(call.tensor(x), axis, emit)
    last = len(x.shape) - 1
    moved = (*(n for i, n in enumerate(x.shape) if i != axis), count)
    indices = call.move_axis(work.reshape(chosen["index"], moved), last, axis)
    return [call.result(values, x.dtype), call.result(indices, _INT64)]


@operator("NonZero", "Unique", "NonMaxSuppression", static=(0, 1))
def _depends_on_data(call: NodeCall, *inputs: OnnxValue) -> OnnxValue:
    for value in inputs:
        call.array(value, "the shape of its result")
    raise call.refuse("a result whose shape depends on the elements of its input")


@operator("EyeLike")
def _eye_like(call: NodeCall, x: OnnxValue) -> OnnxValue:
    from volumetric.loaders.onnx_import.onnx_types import dtype_of_code

    dtype = dtype_of_code(call.attribute("dtype")) if call.attribute("dtype") else x.dtype
    return known_value(np.eye(*x.shape, k=call.attribute("k", 0)).astype(dtype))
