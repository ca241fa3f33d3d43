"""Operators that onnxruntime adds when it optimises a graph (the domain com.microsoft)."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.convolutions import convolve
from volumetric.loaders.onnx_import.operators.integer_arithmetic import dynamic_codes
from volumetric.loaders.onnx_import.operators.matrix_products import matmul
from volumetric.loaders.onnx_import.operators.operator_table import operator, operator_rules


@operator("com.microsoft:FusedMatMul")
def _fused_matmul(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    x, y = call.tensor(a), call.tensor(b)
    if call.attribute("transBatchA", 0) or call.attribute("transBatchB", 0):
        raise call.refuse("transBatchA")
    x = call.move_axis(x, len(a.shape) - 1, len(a.shape) - 2) if call.attribute("transA", 0) else x
    y = call.move_axis(y, len(b.shape) - 1, len(b.shape) - 2) if call.attribute("transB", 0) else y
    return call.result(call.work.affine(matmul(call, x, y), float(call.attribute("alpha", 1.0))), a.dtype)


@operator("com.microsoft:BiasGelu", "com.microsoft:FastGelu")
def _bias_gelu(call: NodeCall, x: OnnxValue, bias: OnnxValue | None = None) -> OnnxValue:
    y = call.tensor(x) if bias is None else call.pair("add", call.tensor(x), call.tensor(bias))
    name = "gelu_tanh" if call.node.op.endswith("FastGelu") else "gelu"
    return call.result(call.work.unary(y, name), x.dtype, x.shape)


@operator("com.microsoft:SkipLayerNormalization")
def _skip_norm(
    call: NodeCall,
    x: OnnxValue,
    skip: OnnxValue,
    gain: OnnxValue,
    shift: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> list[OnnxValue]:
    work = call.work
    total = call.pair("add", call.tensor(x), call.tensor(skip))
    total = total if bias is None else call.pair("add", total, call.tensor(bias))
    rows = work.reshape(total, (prod(x.shape[:-1]), x.shape[-1]))
    eps = float(call.attribute("epsilon", 1e-12))
    vector = None if shift is None else call.tensor(shift)
    y = work.reshape(work.norm(rows, call.tensor(gain), vector, kind="layer", eps=eps), x.shape)
    y = call.result(y, x.dtype)
    return [y, y, y, call.result(total, x.dtype)]


@operator("com.microsoft:FusedConv")
def _fused_conv(
    call: NodeCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None, other: OnnxValue | None = None
) -> OnnxValue:
    y = convolve(call, call.tensor(x), call.tensor(weight), None if bias is None else call.tensor(bias))
    y = y if other is None else call.work.binary("add", y, call.tensor(other))
    name = call.attribute("activation", "")
    value = call.result(y, x.dtype)
    if not name:
        return value
    params = call.attribute("activation_params", ())
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}.get(name, ())
    after = replace(call, attributes=dict(zip(names, params, strict=False)), node=replace(call.node, op=name))
    result = operator_rules()[name].emit(after, value)
    return result if isinstance(result, OnnxValue) else result[0]


@operator("com.microsoft:DynamicQuantizeMatMul")
def _dynamic_matmul(
    call: NodeCall,
    a: OnnxValue,
    b: OnnxValue,
    b_scale: OnnxValue,
    b_zero: OnnxValue | None = None,
    bias: OnnxValue | None = None,
) -> OnnxValue:
    codes, scale, zero = dynamic_codes(call, a)
    product = operator_rules()["MatMulInteger"].emit(call, codes, b, zero, b_zero)
    assert isinstance(product, OnnxValue)
    factor = call.pair("mul", call.tensor(scale), call.tensor(b_scale))
    y = call.pair("mul", call.tensor(product), factor)
    y = y if bias is None else call.pair("add", y, call.tensor(bias))
    return call.result(y, a.dtype)


@operator("com.microsoft:MatMulIntegerToFloat")
def _matmul_to_float(call: NodeCall, *inputs: OnnxValue | None) -> OnnxValue:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (*inputs, *[None] * (7 - len(inputs)))
    product = operator_rules()["MatMulInteger"].emit(call, a, b, a_zero, b_zero)
    assert isinstance(product, OnnxValue)
    assert a_scale is not None
    assert b_scale is not None
    y = call.pair("mul", call.tensor(product), call.pair("mul", call.tensor(a_scale), call.tensor(b_scale)))
    y = y if bias is None else call.pair("add", y, call.tensor(bias))
    return call.result(y, a_scale.dtype)


@operator("com.microsoft:DynamicQuantizeLSTM", static=(4,))
def _dynamic_lstm(call: NodeCall, *inputs: OnnxValue | None) -> list[OnnxValue]:
    """Emit an LSTM with weights that are decoded; onnxruntime also rounds its inputs to 8 bits."""
    x, w, r, b, lengths, h, c, p, w_scale, w_zero, r_scale, r_zero = (*inputs, *[None] * (12 - len(inputs)))
    decoded = [_decoded(call, *of) for of in ((w, w_scale, w_zero), (r, r_scale, r_zero))]
    weights = [call.result(call.move_axis(y, 2, 1), inputs[0].dtype) for y in decoded]  # pyright: ignore[reportOptionalMemberAccess]
    inner = replace(call, node=replace(call.node, op="LSTM"))
    return list(operator_rules()["LSTM"].emit(inner, x, *weights, b, lengths, h, c, p))  # pyright: ignore[reportArgumentType]


def _decoded(call: NodeCall, codes: OnnxValue | None, scale: OnnxValue | None, zero: OnnxValue | None) -> int:
    """Emit weights ``[D, in, out]`` with a scale for each direction, or for each direction and column."""
    assert codes is not None
    assert scale is not None
    work, y = call.work, call.tensor(codes)
    for name, value in (("sub", zero), ("mul", scale)):
        if value is not None:
            sizes = (value.shape[0], 1, value.size // value.shape[0])
            y = call.pair(name, y, work.reshape(call.tensor(value), sizes))
    return y
