"""Comparisons, logic, and selections by them."""

from __future__ import annotations

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.element_functions import is_nan
from volumetric.loaders.onnx_import.operators.elementwise_math import paired
from volumetric.loaders.onnx_import.operators.operator_table import operator

_BOOL = np.dtype(bool)


def _inverse(call: NodeCall, value: OnnxValue) -> OnnxValue:
    return call.result(call.work.affine(call.tensor(value), -1.0, 1.0), _BOOL, value.shape)


@operator("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _compare(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    op = call.node.op
    if op == "Greater":
        return paired(call, "greater", a, b, _BOOL)
    if op == "Less":
        return paired(call, "greater", b, a, _BOOL)
    other = paired(call, "greater", *((b, a) if op == "GreaterOrEqual" else (a, b)), _BOOL)
    return _inverse(call, other)


@operator("Equal")
def _equal(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    above, below = paired(call, "greater", a, b, _BOOL), paired(call, "greater", b, a, _BOOL)
    return _inverse(call, paired(call, "add", above, below, _BOOL))


@operator("And")
def _and(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return paired(call, "mul", a, b)


@operator("Or")
def _or(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return paired(call, "max", a, b)


@operator("Xor")
def _xor(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    apart = paired(call, "sub", a, b)
    return call.result(call.work.unary(call.tensor(apart), "abs"), _BOOL, apart.shape)


@operator("Not")
def _not(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return _inverse(call, x)


@operator("IsNaN")
def _is_nan(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return call.result(is_nan(call, call.tensor(x)), _BOOL, x.shape)


@operator("IsInf")
def _is_inf(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, y = call.work, call.tensor(x)
    most = float(np.finfo(np.float32).max)
    parts: list[int] = []
    if call.attribute("detect_positive", 1):
        parts.append(call.pair("greater", y, work.scalar(most)))
    if call.attribute("detect_negative", 1):
        parts.append(call.pair("greater", work.scalar(-most), y))
    total = work.add(*parts) if parts else work.affine(work.unary(y, "sign"), 0.0)
    return call.result(total, _BOOL, x.shape)


@operator("Where")
def _where(call: NodeCall, condition: OnnxValue, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
    if condition.array is not None and (condition.array.all() or not condition.array.any()):
        chosen = a if condition.array.all() else b
        return call.result(call.spread(call.tensor(chosen), shape or (1,)), a.dtype, shape)
    result = call.select(call.tensor(condition), call.small_tensor(a), call.small_tensor(b))
    return call.result(call.spread(result, shape or (1,)), a.dtype, shape)
