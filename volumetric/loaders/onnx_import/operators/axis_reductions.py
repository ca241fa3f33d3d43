"""Reductions along axes, running sums, and losses."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.element_functions import clipped
from volumetric.loaders.onnx_import.operators.operator_table import operator


def reduce_extreme(call: NodeCall, x: int, axes: tuple[int, ...], *, least: bool) -> int:
    """Emit the largest or the least element along axes; of no elements it is infinite."""
    work = call.work
    shape = work.shape(x)
    if not prod(shape[i] for i in axes):
        sizes = tuple(1 if i in axes else n for i, n in enumerate(shape))
        return work.broadcast(work.constant(np.full((1,) * len(sizes), np.inf if least else -np.inf)), sizes)
    if least:
        return work.unary(work.reduce(work.unary(x, "neg"), "max", axes), "neg")
    return work.reduce(x, "max", axes)


def _product(call: NodeCall, x: int, axes: tuple[int, ...]) -> int:
    """Multiply halves of an axis until one element is left."""
    work = call.work
    for axis in axes:
        size = work.shape(x)[axis]
        if size == 0:
            shape = tuple(1 if i == axis else n for i, n in enumerate(work.shape(x)))
            x = work.broadcast(work.constant(np.ones((1,) * len(shape))), shape)
        while size > 1:
            half = size // 2
            low, high = work.part(x, axis, 0, half), work.part(x, axis, half, 2 * half)
            rest = [work.part(x, axis, 2 * half, size)] if size % 2 else []
            x = work.concat([work.binary("mul", low, high), *rest], axis)
            size = work.shape(x)[axis]
    return x


def _log_sum_exp(call: NodeCall, x: int, axes: tuple[int, ...]) -> int:
    work = call.work
    top = reduce_extreme(call, x, axes, least=False)
    finite = call.pair("greater", work.scalar(3.4e38), work.unary(top, "abs"))
    top = work.binary("mul_nonzero", top, finite)
    total = work.reduce(work.unary(call.pair("sub", x, top), "exp"), "sum", axes)
    return work.binary("add", work.unary(total, "log"), top)


def _reduced(call: NodeCall, x: int, axes: tuple[int, ...]) -> int:
    work, op = call.work, call.node.op.removeprefix("Reduce")
    if op in ("Max", "Min"):
        return reduce_extreme(call, x, axes, least=op == "Min")
    if op == "Prod":
        return _product(call, x, axes)
    if op == "LogSumExp":
        return _log_sum_exp(call, x, axes)
    if op == "Mean":
        if not prod(work.shape(x)[i] for i in axes):
            return work.affine(work.reduce(x, "sum", axes), 1.0, float("nan"))
        return work.reduce(x, "mean", axes)
    before = {"L1": "abs", "L2": "square", "SumSquare": "square"}.get(op, "linear")
    after = {"L2": "sqrt", "LogSum": "log"}.get(op, "linear")
    return work.unary(work.reduce(work.unary(x, before), "sum", axes), after)


@operator(
    *(f"Reduce{n}" for n in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")),
    static=(1,),
)
def _reduce(call: NodeCall, x: OnnxValue, axes: OnnxValue | None = None) -> OnnxValue:
    rank = len(x.shape)
    chosen = call.axes("axes", axes, rank)
    if not chosen and call.attribute("noop_with_empty_axes", 0):
        chosen = ()
    elif not chosen:
        chosen = tuple(range(rank))
    y, work = call.tensor(x), call.work
    if not chosen:
        y = work.reshape(_reduced(call, work.reshape(y, (*work.shape(y), 1)), (len(work.shape(y)),)), work.shape(y))
        return call.result(y, x.dtype, x.shape)
    y = _reduced(call, y, chosen)
    if x.dtype.kind == "b":
        y = clipped(call, y, 0.0, 1.0)  # of no elements
    shape = (
        work.shape(y) if call.attribute("keepdims", 1) else tuple(n for i, n in enumerate(x.shape) if i not in chosen)
    )
    return call.result(y, x.dtype, shape)


@operator("CumSum", static=(1,))
def _cumsum(call: NodeCall, x: OnnxValue, axis: OnnxValue) -> OnnxValue:
    work = call.work
    along = call.axis(int(call.number(axis, "the axis")), len(x.shape))
    size = x.shape[along]
    mask = np.triu(np.ones((size, size)), 1 if call.attribute("exclusive", 0) else 0)
    mask = mask.T if call.attribute("reverse", 0) else mask

    def emit(rows: int) -> int:
        product = work.gemm(work.reshape(rows, (1, *work.shape(rows))), work.constant(np.ascontiguousarray(mask)[None]))
        return work.reshape(product, work.shape(rows))

    return call.result(call.along_last(call.tensor(x), along, emit), x.dtype, x.shape)


@operator("Det")
def _det(call: NodeCall, x: OnnxValue) -> OnnxValue:
    """Determinants by elimination without pivots would divide by 0: minors are expanded, for small matrices."""
    work, n = call.work, x.shape[-1]
    if n > 4:
        raise call.refuse(f"the determinant of a {n} × {n} matrix", hint="up to 4 × 4 is supported")
    flat = work.reshape(call.tensor(x), (prod(x.shape[:-2]), n * n))

    def minor(rows: list[int], columns: list[int]) -> int:
        if not rows:
            return work.scalar(1.0)
        total: int | None = None
        for i, column in enumerate(columns):
            entry = work.part(flat, 1, rows[0] * n + column, rows[0] * n + column + 1)
            rest = minor(rows[1:], columns[:i] + columns[i + 1 :])
            term = work.affine(call.pair("mul", entry, rest), -1.0 if i % 2 else 1.0)
            total = term if total is None else work.add(total, term)
        return total if total is not None else work.scalar(1.0)

    every = list(range(n))
    return call.result(minor(every, every), x.dtype, x.shape[:-2])
