"""Quantised operators: codes are whole numbers in float32, whose sums are exact up to 2²⁴."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_types import dtype_of_code
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.convolutions import convolve
from volumetric.loaders.onnx_import.operators.element_functions import clipped, round_even
from volumetric.loaders.onnx_import.operators.matrix_products import multiply
from volumetric.loaders.onnx_import.operators.operator_table import operator

_INT32, _FLOAT, _UINT8 = np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.uint8)
_RANGES = {
    "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535), "int4": (-8, 7),
    "uint4": (0, 15),
}  # fmt: skip


def _spread_scale(call: NodeCall, value: OnnxValue, x: OnnxValue) -> int:
    """Emit a scale or a zero point so that it broadcasts over `x`: for all, for each index of an axis, or by blocks."""
    work, rank = call.work, len(x.shape)
    tensor = call.tensor(value)
    if value.size == 1:
        return work.reshape(tensor, (1,))
    axis = call.axis(call.attribute("axis", 1), rank)
    block = int(call.attribute("block_size", 0))
    if len(value.shape) == 1 and not block:
        return work.reshape(tensor, tuple(value.size if i == axis else 1 for i in range(rank)))
    before, count, after = prod(value.shape[:axis]), value.shape[axis], prod(value.shape[axis + 1 :])
    wide = work.broadcast(work.reshape(tensor, (before, count, 1, after)), (before, count, block, after))
    wide = work.reshape(wide, (before, count * block, after))
    return work.reshape(work.part(wide, 1, 0, x.shape[axis]), x.shape)


def quantise(call: NodeCall, x: int, scale: int, zero: int | None, dtype: np.dtype) -> int:
    """Emit ``clip(round(x / scale) + zero)``."""
    if dtype.name not in _RANGES:
        raise call.refuse(f"quantisation to {dtype.name}", hint="one of " + ", ".join(_RANGES))
    y = round_even(call, call.pair("div", x, scale))
    y = y if zero is None else call.pair("add", y, zero)
    low, high = _RANGES[dtype.name]
    return clipped(call, y, float(low), float(high))


@operator("QuantizeLinear", "com.microsoft:QuantizeLinear")
def _quantize(call: NodeCall, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None = None) -> OnnxValue:
    code = call.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of_code(code) if code else _UINT8
    factor = _spread_scale(call, scale, x)
    offset = None if zero is None else _spread_scale(call, zero, x)
    return call.result(quantise(call, call.tensor(x), factor, offset, dtype), dtype, x.shape)


@operator("DequantizeLinear", "com.microsoft:DequantizeLinear")
def _dequantize(call: NodeCall, x: OnnxValue, scale: OnnxValue, zero: OnnxValue | None = None) -> OnnxValue:
    y = call.tensor(x)
    if zero is not None:
        y = call.pair("sub", y, _spread_scale(call, zero, x))
    return call.result(call.pair("mul", y, _spread_scale(call, scale, x)), scale.dtype, x.shape)


@operator("DynamicQuantizeLinear")
def dynamic_codes(call: NodeCall, x: OnnxValue) -> list[OnnxValue]:
    """Emit codes of 8 bits, their scale and their zero point, from the range of the values."""
    work = call.work
    flat = work.reshape(call.tensor(x), (x.size,))
    high = call.pair("max", work.reduce(flat, "max", (0,)), work.scalar(0.0))
    low = work.unary(call.pair("max", work.reduce(work.unary(flat, "neg"), "max", (0,)), work.scalar(0.0)), "neg")
    scale = work.binary("div", work.binary("sub", high, low), work.scalar(255.0))
    none = call.equal(scale, work.scalar(0.0))
    below = work.binary("add", scale, none)
    zero = clipped(call, round_even(call, work.unary(work.binary("div", low, below), "neg")), 0.0, 255.0)
    codes = quantise(call, call.tensor(x), below, zero, _UINT8)
    return [
        call.result(codes, _UINT8, x.shape),
        call.result(scale, _FLOAT, ()),
        call.result(zero, _UINT8, ()),
    ]


def _shifted(call: NodeCall, x: OnnxValue, zero: OnnxValue | None, shape: tuple[int, ...]) -> int:
    """Emit codes less their zero point, which has the shape `shape` if it is not one number."""
    y = call.tensor(x)
    if zero is None or (zero.array is not None and not zero.array.any()):
        return y
    offset = call.tensor(zero)
    offset = call.work.reshape(offset, (1,) if zero.size == 1 else shape)
    return call.pair("sub", y, offset)


def _rows(zero: OnnxValue | None) -> tuple[int, ...]:
    """Shape of the zero points of rows of a left matrix."""
    if zero is None:
        return (1,)
    return (zero.size, 1) if len(zero.shape) == 1 else zero.shape


def _columns(zero: OnnxValue | None) -> tuple[int, ...]:
    return (1,) if zero is None else zero.shape


@operator("MatMulInteger")
def _matmul_integer(
    call: NodeCall, a: OnnxValue, b: OnnxValue, a_zero: OnnxValue | None = None, b_zero: OnnxValue | None = None
) -> OnnxValue:
    x, y = _shifted(call, a, a_zero, _rows(a_zero)), _shifted(call, b, b_zero, _columns(b_zero))
    product, shape = multiply(call, a, b, x, y)
    return call.result(product, _INT32, shape)


@operator("ConvInteger")
def _conv_integer(
    call: NodeCall, x: OnnxValue, weight: OnnxValue, x_zero: OnnxValue | None = None, w_zero: OnnxValue | None = None
) -> OnnxValue:
    shape = (1,) if w_zero is None else (w_zero.size, *(1,) * (len(weight.shape) - 1))
    y = convolve(call, _shifted(call, x, x_zero, (1,)), _shifted(call, weight, w_zero, shape), None)
    return call.result(y, _INT32)


@operator("QLinearMatMul")
def _qlinear_matmul(call: NodeCall, *inputs: OnnxValue) -> OnnxValue:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    x, y = _shifted(call, a, a_zero, _rows(a_zero)), _shifted(call, b, b_zero, _columns(b_zero))
    product, shape = multiply(call, a, b, x, y)
    factor = call.pair("mul", call.work.reshape(call.tensor(a_scale), _rows(a_scale)), call.tensor(b_scale))
    factor = call.pair("div", factor, call.work.reshape(call.tensor(y_scale), _rows(y_scale)))
    scaled = call.pair("mul", product, factor)
    codes = _codes(call, scaled, call.work.reshape(call.tensor(y_zero), _rows(y_zero)), y_zero.dtype)
    return call.result(codes, y_zero.dtype, shape)


def _codes(call: NodeCall, x: int, zero: int, dtype: np.dtype) -> int:
    low, high = _RANGES[dtype.name]
    return clipped(call, call.pair("add", round_even(call, x), zero), float(low), float(high))


@operator("QLinearConv")
def _qlinear_conv(call: NodeCall, *inputs: OnnxValue) -> OnnxValue:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = inputs
    axes = (1,) * (len(w.shape) - 1)
    weight = _shifted(call, w, w_zero, (w_zero.size, *axes))
    y = convolve(call, _shifted(call, x, x_zero, (1,)), weight, call.tensor(bias[0]) if bias else None)
    work = call.work
    scale = work.reshape(call.tensor(w_scale), (1, w_scale.size, *axes[1:]) if w_scale.size > 1 else (1,))
    factor = call.pair("div", call.pair("mul", scale, work.reshape(call.tensor(x_scale), (1,))), call.tensor(y_scale))
    codes = _codes(call, call.pair("mul", y, factor), call.tensor(y_zero), y_zero.dtype)
    return call.result(codes, y_zero.dtype)
