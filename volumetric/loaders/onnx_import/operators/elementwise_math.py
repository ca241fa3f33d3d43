"""Arithmetic element by element, and casts."""

from __future__ import annotations

import numpy as np

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_declaration import is_floating, is_whole
from volumetric.loaders.onnx_import.onnx_types import dtype_of_code
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.element_functions import round_even, truncate
from volumetric.loaders.onnx_import.operators.operator_table import operator

_BIG = float(np.finfo(np.float32).max)


def paired(call: NodeCall, name: str, a: OnnxValue, b: OnnxValue, dtype: np.dtype | None = None) -> OnnxValue:
    """Emit a function of two values that broadcast."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    whole = call.pair(name, call.small_tensor(a), call.small_tensor(b))
    if int(np.prod(shape)) != int(np.prod(call.work.shape(whole))):
        whole = call.spread(whole, shape)
    return call.result(whole, dtype or a.dtype, shape)


@operator("Add")
def _add(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return paired(call, "add", a, b)


@operator("Sub")
def _sub(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return paired(call, "sub", a, b)


@operator("Mul")
def _mul(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return paired(call, "mul", a, b)


@operator("Div")
def _div(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    quotient = paired(call, "div", a, b)
    if not is_whole(a.dtype):
        return quotient
    return call.result(truncate(call, call.tensor(quotient)), a.dtype, quotient.shape)


@operator("Mod")
def _mod(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    quotient = call.tensor(paired(call, "div", a, b))
    whole = truncate(call, quotient) if call.attribute("fmod", 0) else call.work.unary(quotient, "floor")
    shape = np.broadcast_shapes(a.shape, b.shape)
    x, y = call.tensor(a), call.tensor(b)
    rest = call.pair("sub", x, call.pair("mul_nonzero", y, whole))
    if not is_whole(a.dtype):  # by infinity: the number itself, or infinity if the signs differ
        work = call.work
        infinite = call.pair("greater", work.unary(y, "abs"), work.scalar(_BIG))
        apart = call.pair("greater", work.scalar(0.0), call.pair("mul", work.unary(x, "sign"), work.unary(y, "sign")))
        other = x if call.attribute("fmod", 0) else call.select(apart, y, x)
        rest = call.select(infinite, other, rest)
    return call.result(rest, a.dtype, shape)


@operator("Max", "Min", "Sum", "Mean")
def _many(call: NodeCall, *values: OnnxValue) -> OnnxValue:
    name = {"Max": "max", "Min": "min"}.get(call.node.op, "add")
    total = values[0]
    for value in values[1:]:
        total = paired(call, name, total, value)
    if call.node.op == "Mean":
        return call.result(call.work.affine(call.tensor(total), 1 / len(values)), total.dtype, total.shape)
    return total


@operator("Pow")
def _pow(call: NodeCall, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    work = call.work
    shape = np.broadcast_shapes(a.shape, b.shape)
    exponents = None if b.array is None else np.unique(b.array.astype(np.float64))
    if exponents is not None and len(exponents) == 1 and shape == a.shape:
        x, power = call.tensor(a), float(exponents[0])
        simple = {0.5: "sqrt", 2.0: "square", -0.5: "rsqrt", -1.0: "reciprocal", 1.0: "linear"}
        if power in simple:
            return call.result(work.unary(x, simple[power]), a.dtype, shape)
        if power.is_integer() and 0 < power <= 16:
            return call.result(_power(call, x, int(power)), a.dtype, shape)
    x, y = (call.spread(call.tensor(v), shape or (1,)) for v in (a, b))
    size = work.unary(work.binary("mul", y, work.unary(work.unary(x, "abs"), "log")), "exp")
    none = call.equal(y, work.scalar(0.0))
    half = work.affine(y, 0.5)
    odd = work.affine(work.binary("sub", half, work.unary(half, "floor")), 2.0)
    below = call.pair("greater", work.scalar(0.0), x)
    fraction = call.pair("greater", work.binary("sub", y, work.unary(y, "floor")), work.scalar(0.0))
    sign = work.affine(work.binary("mul", below, odd), -2.0, 1.0)
    size = call.select(work.binary("mul", below, fraction), work.scalar(float("nan")), work.binary("mul", size, sign))
    result = call.select(none, work.scalar(1.0), size)
    if is_whole(a.dtype):
        result = round_even(call, result)
    return call.result(result, a.dtype, shape)


def _power(call: NodeCall, x: int, n: int) -> int:
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else call.work.binary("mul", result, square)
        n >>= 1
        square = call.work.unary(square, "square") if n else square
    return x if result is None else result


@operator("Clip")
def _clip(call: NodeCall, x: OnnxValue, low: OnnxValue | None = None, high: OnnxValue | None = None) -> OnnxValue:
    y = call.tensor(x)
    for name, bound, value in (("max", "min", low), ("min", "max", high)):
        if value is not None:
            y = call.pair(name, y, call.tensor(value))
        elif bound in call.attributes:
            y = call.pair(name, y, call.work.scalar(float(call.attribute(bound))))
    return call.result(y, x.dtype, x.shape)


@operator("PRelu")
def _prelu(call: NodeCall, x: OnnxValue, slope: OnnxValue) -> OnnxValue:
    y, work = call.tensor(x), call.work
    low = call.pair("mul", call.pair("min", y, work.scalar(0.0)), call.tensor(slope))
    return call.result(work.binary("add", work.unary(y, "relu"), low), x.dtype, x.shape)


@operator("Identity")
def _identity(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return x


@operator("Dropout", static=(1, 2))
def _dropout(
    call: NodeCall, x: OnnxValue, ratio: OnnxValue | None = None, training: OnnxValue | None = None
) -> list[OnnxValue]:
    if (
        training is not None
        and call.number(training, "training_mode")
        and (ratio is None or call.number(ratio, "ratio"))
    ):
        raise call.refuse("dropout that is active in a saved graph")
    ones = call.work.broadcast(call.work.constant(np.ones((1,) * len(x.shape or (1,)))), x.shape or (1,))
    return [x, call.result(ones, np.dtype(bool), x.shape)]


@operator("Cast", "CastLike")
def _cast(call: NodeCall, x: OnnxValue, like: OnnxValue | None = None) -> OnnxValue:
    return cast_value(call, x, dtype_of_code(call.attribute("to")) if like is None else like.dtype)


def cast_value(call: NodeCall, x: OnnxValue, dtype: np.dtype) -> OnnxValue:
    """Emit a cast: fractions are cut off, small integers wrap, and a number that is not 0 is true."""
    work, y = call.work, call.tensor(x)
    if dtype.kind == "b":
        if x.dtype.kind == "b":
            return x
        size = work.unary(y, "abs")
        return call.result(call.pair("greater", size, work.scalar(0.0)), dtype, x.shape)
    if is_floating(dtype):
        if dtype.itemsize < 2:
            raise call.refuse(f"rounding of computed values to {dtype.name}")
        return call.result(y, dtype, x.shape)
    if is_floating(x.dtype):
        y = truncate(call, y)
    bits = {"int4": 4, "uint4": 4}.get(dtype.name, 8 * dtype.itemsize)
    narrower = is_floating(x.dtype) or bits < 8 * x.dtype.itemsize or (dtype.kind != x.dtype.kind)
    if bits <= 16 and narrower and x.dtype.kind != "b":
        span, low = float(1 << bits), 0.0 if dtype.name.startswith("u") else -float(1 << (bits - 1))
        turns = work.unary(work.affine(y, 1 / span, -low / span), "floor")
        y = work.binary("sub", y, work.affine(turns, span))
    return call.result(y, dtype, x.shape, x.ids)
