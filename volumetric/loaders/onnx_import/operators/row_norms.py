"""Softmax and normalisations."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.image_pooling import raised
from volumetric.loaders.onnx_import.operators.operator_table import operator

_FLOAT = np.dtype(np.float32)


def _over_rows(call: NodeCall, x: OnnxValue, emit: object) -> OnnxValue:
    """Emit a function of rows along the attribute axis; before opset 13 all axes from it on are one row."""
    work = call.work
    axis = call.axis(call.attribute("axis", 1 if call.opset < 13 else -1), len(x.shape))
    y = call.tensor(x)
    if call.opset < 13:
        rows = emit(work.reshape(y, (prod(x.shape[:axis]), prod(x.shape[axis:]))))  # pyright: ignore[reportCallIssue]
        return call.result(rows, x.dtype, x.shape)
    return call.result(call.along_last(y, axis, emit), x.dtype, x.shape)  # pyright: ignore[reportArgumentType]


@operator("Softmax")
def _softmax(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return _over_rows(call, x, call.work.softmax)


@operator("LogSoftmax")
def _log_softmax(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return _over_rows(call, x, lambda rows: log_softmax(call, rows))


def log_softmax(call: NodeCall, rows: int) -> int:
    """Emit the logarithm of the softmax of rows."""
    work = call.work
    low = work.binary("sub", rows, work.reduce(rows, "max", (1,)))
    return work.binary("sub", low, work.unary(work.reduce(work.unary(low, "exp"), "sum", (1,)), "log"))


def _by_channel(call: NodeCall, value: OnnxValue, rank: int) -> int:
    return call.work.reshape(call.tensor(value), (1, value.size, *(1,) * (rank - 2)))


@operator("BatchNormalization")
def _batch_norm(
    call: NodeCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue, mean: OnnxValue, variance: OnnxValue
) -> OnnxValue:
    if call.attribute("training_mode", 0) or sum(map(bool, call.node.outputs)) > 1:
        raise call.refuse("batch normalisation that changes its statistics", hint="export the model in its eval mode")
    work, rank = call.work, len(x.shape)
    eps = float(call.attribute("epsilon", 1e-5))
    factor = work.binary("mul", call.tensor(scale), work.unary(work.affine(call.tensor(variance), 1.0, eps), "rsqrt"))
    shift = work.binary("sub", call.tensor(bias), work.binary("mul", call.tensor(mean), factor))
    if rank == 1:
        return call.result(work.binary("add", work.binary("mul", call.tensor(x), factor), shift), x.dtype)
    sizes = (1, scale.size, *(1,) * (rank - 2))
    y = call.pair("mul", call.tensor(x), work.reshape(factor, sizes))
    return call.result(call.pair("add", y, work.reshape(shift, sizes)), x.dtype)


def _normalised(call: NodeCall, x: int, rows: int, width: int, *, eps: float, kind: str = "layer") -> int:
    work = call.work
    shape = work.shape(x)
    return work.reshape(work.norm(work.reshape(x, (rows, width)), kind=kind, eps=eps), shape)


@operator("InstanceNormalization")
def _instance_norm(call: NodeCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> OnnxValue:
    rank, rows = len(x.shape), prod(x.shape[:2])
    eps = float(call.attribute("epsilon", 1e-5))
    y = _normalised(call, call.tensor(x), rows, prod(x.shape[2:]), eps=eps)
    y = call.pair("add", call.pair("mul", y, _by_channel(call, scale, rank)), _by_channel(call, bias, rank))
    return call.result(y, x.dtype)


@operator("GroupNormalization")
def _group_norm(call: NodeCall, x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> OnnxValue:
    work, groups, rank = call.work, int(call.attribute("num_groups")), len(x.shape)
    n, channels, rest = x.shape[0], x.shape[1], prod(x.shape[2:])
    eps = float(call.attribute("epsilon", 1e-5))
    y = _normalised(call, call.tensor(x), n * groups, channels // groups * rest, eps=eps)
    if scale.size == groups != channels:  # opset 18: one for each group
        parts = work.reshape(y, (n, groups, channels // groups * rest))
        factors = (work.reshape(call.tensor(v), (1, groups, 1)) for v in (scale, bias))
        factor, shift = factors
        y = call.pair("add", call.pair("mul", parts, factor), shift)
        return call.result(y, x.dtype, x.shape)
    y = call.pair("add", call.pair("mul", y, _by_channel(call, scale, rank)), _by_channel(call, bias, rank))
    return call.result(y, x.dtype)


@operator("LayerNormalization", "RMSNormalization", "com.microsoft:SimplifiedLayerNormalization")
def _layer_norm(
    call: NodeCall, x: OnnxValue, scale: OnnxValue | None = None, bias: OnnxValue | None = None
) -> list[OnnxValue]:
    work = call.work
    axis = call.axis(call.attribute("axis", -1), len(x.shape))
    rows, width = prod(x.shape[:axis]), prod(x.shape[axis:])
    kind = "layer" if call.node.op == "LayerNormalization" else "rms"
    eps = float(call.attribute("epsilon", 1e-5))
    table = work.reshape(call.tensor(x), (rows, width))
    plain = (scale is None or scale.size == width) and (bias is None or bias.size == width) and scale is not None
    vectors = [work.reshape(call.tensor(v), (width,)) for v in (scale, bias) if v is not None] if plain else []
    y, stats = work.emit("norm", (table, *vectors), kind=kind, eps=eps, unit_offset=False)
    y = work.reshape(y, x.shape)
    if not plain:
        y = y if scale is None else call.pair("mul", y, call.tensor(scale))
        y = y if bias is None else call.pair("add", y, call.tensor(bias))
    shape = (*x.shape[:axis], *(1,) * (len(x.shape) - axis))
    columns = [call.result(work.part(stats, 1, i, i + 1), _FLOAT, shape) for i in (0, 1)]
    return [call.result(y, x.dtype), *columns]


@operator("LpNormalization")
def _lp_norm(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, p = call.work, float(call.attribute("p", 2))
    axis = call.axis(call.attribute("axis", -1), len(x.shape))
    y = call.tensor(x)
    sums = work.reduce(raised(call, work.unary(y, "abs"), p), "sum", (axis,))
    length = raised(call, sums, 1 / p)
    none = call.equal(length, work.scalar(0.0))
    return call.result(call.pair("div", y, work.binary("add", length, none)), x.dtype)


@operator("MeanVarianceNormalization")
def _mean_variance(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, y = call.work, call.tensor(x)
    axes = tuple(sorted(call.axis(a, len(x.shape)) for a in call.numbers("axes", (0, 2, 3)) or ()))
    low = call.pair("sub", y, work.reduce(y, "mean", axes))
    deviation = work.unary(work.reduce(work.unary(low, "square"), "mean", axes), "sqrt")
    return call.result(call.pair("div", low, work.affine(deviation, 1.0, 1e-9)), x.dtype)
