"""Pooling of windows and of whole images."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.array_movement import padded
from volumetric.loaders.onnx_import.operators.convolutions import window_fields
from volumetric.loaders.onnx_import.operators.operator_table import operator


def _windows(call: NodeCall, sizes: Shape) -> tuple[dict[str, Shape], Shape]:
    """Return the windows as the attributes of `unfold`, and the padding after the image."""
    kernel = call.numbers("kernel_shape") or ()
    stride, dilation, before, after = window_fields(call, sizes, kernel)
    up = bool(call.attribute("ceil_mode", 0))
    counts: list[int] = []
    for n, k, s, d, b, a in zip(sizes, kernel, stride, dilation, before, after, strict=True):
        room = n + b + a - d * (k - 1) - 1
        count = (-(-room // s) if up else room // s) + 1
        if up and (count - 1) * s >= n + b:  # a window must begin inside the image or its left margin
            count -= 1
        counts.append(count)
    fields = {"kernel": kernel, "stride": stride, "dilation": dilation, "before": before, "counts": tuple(counts)}
    return fields, after


@operator("MaxPool")
def _max_pool(call: NodeCall, x: OnnxValue) -> list[OnnxValue]:
    fields, _ = _windows(call, x.shape[2:])
    largest, tap = call.work.emit("pool_max", (call.tensor(x),), **fields)
    y = call.result(largest, x.dtype)
    if len(call.node.outputs) < 2 or not call.node.outputs[1]:
        return [y]
    return [y, call.result(_flat_indices(call, x, tap, fields), np.dtype(np.int64), y.shape)]


def _flat_indices(call: NodeCall, x: OnnxValue, tap: int, fields: dict[str, Shape]) -> int:
    """Emit the index of each largest element in the flat input."""
    work, sizes, kernel = call.work, x.shape[2:], fields["kernel"]
    order = range(len(sizes)) if not call.attribute("storage_order", 0) else reversed(range(len(sizes)))
    strides, step = [0] * len(sizes), 1
    for i in reversed(list(order)):
        strides[i], step = step, step * sizes[i]
    counts, rest = fields["counts"], tap
    total: int | None = None
    for i, size in enumerate(kernel):
        below = float(prod(kernel[i + 1 :]))
        place = work.unary(work.affine(rest, 1 / below, 0.5 / below), "floor")
        rest = work.binary("sub", rest, work.affine(place, below))
        start = np.arange(counts[i]) * fields["stride"][i] - fields["before"][i]
        start = start.reshape(1, 1, *(counts[i] if j == i else 1 for j in range(len(sizes)))).astype(np.float64)
        place = call.pair("add", work.affine(place, float(fields["dilation"][i])), work.constant(start))
        place = work.affine(place, float(strides[i]))
        total = place if total is None else work.binary("add", total, place)
        del size
    planes = np.arange(prod(x.shape[:2]), dtype=np.float64).reshape(*x.shape[:2], *(1,) * len(sizes)) * prod(sizes)
    assert total is not None
    return call.pair("add", total, work.constant(planes))


def _divisors(fields: dict[str, Shape], sizes: Shape, margins: tuple[Shape, Shape]) -> Array:
    """Return the number of elements of each window, ``[*counts]``."""
    whole = np.ones((), np.float64)
    keys = ("kernel", "stride", "dilation", "before", "counts")
    axes = zip(sizes, *(fields[key] for key in keys), *margins, strict=True)
    for n, k, s, d, b, count, left, right in axes:
        places = np.arange(count)[:, None] * s - b + np.arange(k) * d
        whole = np.multiply.outer(whole, ((places >= -left) & (places < n + right)).sum(1))
    return whole


@operator("AveragePool")
def _average_pool(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, sizes = call.work, x.shape[2:]
    fields, after = _windows(call, sizes)
    none = (0,) * len(sizes)
    margins = (fields["before"], after) if call.attribute("count_include_pad", 0) else (none, none)
    sums = work.emit("pool_sum", (call.tensor(x),), **fields)[0]
    divisors = _divisors(fields, sizes, margins)
    return call.result(work.binary("div", sums, work.constant(divisors[None, None])), x.dtype)


@operator("LpPool")
def _lp_pool(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, p = call.work, float(call.attribute("p", 2))
    fields, _ = _windows(call, x.shape[2:])
    size = work.unary(call.tensor(x), "abs")
    sums = work.emit("pool_sum", (raised(call, size, p),), **fields)[0]
    return call.result(raised(call, sums, 1 / p), x.dtype)


def raised(call: NodeCall, x: int, power: float) -> int:
    """Emit a power of numbers that are not negative."""
    names = {1.0: "linear", 2.0: "square", 0.5: "sqrt"}
    work = call.work
    if power in names:
        return work.unary(x, names[power])
    return work.unary(work.affine(work.unary(x, "log"), power), "exp")


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, axes = call.work, range(2, len(x.shape))
    if call.node.op != "GlobalLpPool":
        name = "mean" if call.node.op == "GlobalAveragePool" else "max"
        return call.result(work.reduce(call.tensor(x), name, axes), x.dtype)
    p = float(call.attribute("p", 2))
    sums = work.reduce(raised(call, work.unary(call.tensor(x), "abs"), p), "sum", axes)
    return call.result(raised(call, sums, 1 / p), x.dtype)


@operator("LRN")
def _lrn(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, size = call.work, int(call.attribute("size"))
    alpha, beta, bias = (float(call.attribute(n, d)) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    y = call.tensor(x)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    rank, channels = len(x.shape), x.shape[1]
    left, right = ([n if i == 1 else 0 for i in range(rank)] for n in (before, after))
    squares = padded(call, work.unary(y, "square"), left, right, 0.0)
    total = work.add(*(work.part(squares, 1, i, i + channels) for i in range(size)))
    below = work.unary(work.affine(work.unary(work.affine(total, alpha / size, bias), "log"), beta), "exp")
    return call.result(work.binary("div", y, below), x.dtype)


@operator("MaxUnpool", static=(1, 2))
def _max_unpool(call: NodeCall, x: OnnxValue, indices: OnnxValue, shape: OnnxValue | None = None) -> OnnxValue:
    work = call.work
    kernel = call.numbers("kernel_shape") or ()
    stride, _, before, after = window_fields(call, x.shape[2:], kernel)
    axes = zip(x.shape[2:], kernel, stride, before, after, strict=True)
    own = (*x.shape[:2], *((n - 1) * s + k - b - a for n, k, s, b, a in axes))
    whole = own if shape is None else call.ints(shape, "the shape")
    places = np.stack(np.unravel_index(call.array(indices, "the indices").reshape(-1), own))
    flat = np.asarray(np.ravel_multi_index(tuple(places), whole))
    ids = work.constant(flat.astype(np.int32), "indices")
    rows = work.scatter_rows(work.reshape(call.tensor(x), (x.size, 1)), ids, prod(whole))
    return call.result(rows, x.dtype, whole)
