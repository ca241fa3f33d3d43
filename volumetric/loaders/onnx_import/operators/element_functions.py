"""Functions of one element: activations, rounding, trigonometry."""

from __future__ import annotations

import math
from collections.abc import Callable

from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.operator_table import operator

Function = Callable[[NodeCall, int], int]


def unary(name: str) -> Function:
    """Return the function of a name of the operation `unary`."""
    return lambda call, x: call.work.unary(x, name)


def round_even(call: NodeCall, x: int) -> int:
    """Round to the nearest integer, halves to even."""
    work = call.work
    down = work.unary(x, "floor")
    rest = work.binary("sub", x, down)
    half = work.scalar(0.5)
    half_down = work.affine(down, 0.5)
    odd = work.affine(work.binary("sub", half_down, work.unary(half_down, "floor")), 2.0)
    at_half = call.equal(rest, half)
    up = work.binary("max", call.pair("greater", rest, half), work.binary("mul", at_half, odd))
    return work.binary("add", down, up)


def truncate(call: NodeCall, x: int) -> int:
    """Cut the fraction off."""
    work = call.work
    return work.binary("mul", work.unary(x, "sign"), work.unary(work.unary(x, "abs"), "floor"))


def is_nan(call: NodeCall, x: int) -> int:
    """1 where an element is NaN, else 0."""
    work = call.work
    above = call.pair("greater", x, work.scalar(-1.0))
    return work.affine(work.binary("max", above, call.pair("greater", work.scalar(0.0), x)), -1.0, 1.0)


def _elu(call: NodeCall, x: int, alpha: float) -> int:
    work = call.work
    low = work.affine(work.unary(call.pair("min", x, work.scalar(0.0)), "exp"), alpha, -alpha)
    return work.binary("add", work.unary(x, "relu"), low)


def _with_alpha(emit: Callable[[NodeCall, int, float], int], default: float) -> Function:
    return lambda call, x: emit(call, x, float(call.attribute("alpha", default)))


def _leaky(call: NodeCall, x: int, alpha: float) -> int:
    work = call.work
    return work.binary("add", work.unary(x, "relu"), work.affine(call.pair("min", x, work.scalar(0.0)), alpha))


def clipped(call: NodeCall, x: int, low: float, high: float) -> int:
    """Bound the elements."""
    work = call.work
    return call.pair("min", call.pair("max", x, work.scalar(low)), work.scalar(high))


def hard_sigmoid(call: NodeCall, x: int, alpha: float, beta: float) -> int:
    """``min(1, max(0, α x + β))``."""
    return clipped(call, call.work.affine(x, alpha, beta), 0.0, 1.0)


def _hard_sigmoid(call: NodeCall, x: int) -> int:
    return hard_sigmoid(call, x, float(call.attribute("alpha", 0.2)), float(call.attribute("beta", 0.5)))


def _hard_swish(call: NodeCall, x: int) -> int:
    return call.work.binary("mul", x, hard_sigmoid(call, x, 1 / 6, 0.5))


def _selu(call: NodeCall, x: int) -> int:
    alpha = float(call.attribute("alpha", 1.67326319217681884765625))
    return call.work.affine(_elu(call, x, alpha), float(call.attribute("gamma", 1.05070102214813232421875)))


def _celu(call: NodeCall, x: int, alpha: float) -> int:
    work = call.work
    low = work.affine(work.unary(work.affine(call.pair("min", x, work.scalar(0.0)), 1 / alpha), "exp"), alpha, -alpha)
    return work.binary("add", work.unary(x, "relu"), low)


def _softplus(call: NodeCall, x: int) -> int:
    return call.work.unary(x, "softplus")


def _softsign(call: NodeCall, x: int) -> int:
    return call.work.binary("div", x, call.work.affine(call.work.unary(x, "abs"), 1.0, 1.0))


def _mish(call: NodeCall, x: int) -> int:
    return call.work.binary("mul", x, call.work.unary(call.work.unary(x, "softplus"), "tanh"))


def _gelu(call: NodeCall, x: int) -> int:
    return call.work.unary(x, "gelu_tanh" if call.attribute("approximate", "none") == "tanh" else "gelu")


def _swish(call: NodeCall, x: int, alpha: float) -> int:
    if alpha == 1:
        return call.work.unary(x, "silu")
    return call.work.binary("mul", x, call.work.unary(call.work.affine(x, alpha), "sigmoid"))


def _thresholded(call: NodeCall, x: int, alpha: float) -> int:
    work = call.work
    return work.binary("mul_nonzero", x, call.pair("greater", x, work.scalar(alpha)))


def _shrink(call: NodeCall, x: int) -> int:
    work = call.work
    lambd, bias = float(call.attribute("lambd", 0.5)), float(call.attribute("bias", 0.0))
    above = call.pair("greater", x, work.scalar(lambd))
    below = call.pair("greater", work.scalar(-lambd), x)
    upper = work.binary("mul_nonzero", work.affine(x, 1.0, -bias), above)
    return work.binary("add", upper, work.binary("mul_nonzero", work.affine(x, 1.0, bias), below))


def _exp_minus(call: NodeCall, x: int, other: float) -> int:
    work = call.work
    return work.binary("add", work.unary(x, "exp"), work.affine(work.unary(work.unary(x, "neg"), "exp"), other))


def _sinh(call: NodeCall, x: int) -> int:
    return call.work.affine(_exp_minus(call, x, -1.0), 0.5)


def _cosh(call: NodeCall, x: int) -> int:
    return call.work.affine(_exp_minus(call, x, 1.0), 0.5)


def _tan(call: NodeCall, x: int) -> int:
    return call.work.binary("div", call.work.unary(x, "sin"), call.work.unary(x, "cos"))


def _asinh(call: NodeCall, x: int) -> int:
    work = call.work
    size = work.unary(x, "abs")
    root = work.unary(work.affine(work.unary(x, "square"), 1.0, 1.0), "sqrt")
    return work.binary("mul", work.unary(x, "sign"), work.unary(work.binary("add", size, root), "log"))


def _acosh(call: NodeCall, x: int) -> int:
    work = call.work
    root = work.unary(work.affine(work.unary(x, "square"), 1.0, -1.0), "sqrt")
    return work.unary(work.binary("add", x, root), "log")


def _atanh(call: NodeCall, x: int) -> int:
    work = call.work
    ratio = work.binary("div", work.affine(x, 1.0, 1.0), work.affine(x, -1.0, 1.0))
    return work.affine(work.unary(ratio, "log"), 0.5)


_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
"""atan(x) ≈ x + x³ P(x²) for |x| ≤ tan(π/8): coefficients of Cephes' atanf, highest first."""


def _atan(call: NodeCall, x: int) -> int:
    """Arc tangent with the ranges of Cephes' atanf: halves the angle twice if need be."""
    work = call.work
    size = work.unary(x, "abs")
    far = call.pair("greater", size, work.scalar(math.tan(3 * math.pi / 8)))
    middle = work.binary("sub", call.pair("greater", size, work.scalar(math.tan(math.pi / 8))), far)
    near = work.affine(work.binary("add", far, middle), -1.0, 1.0)
    by_far = work.binary("mul_nonzero", work.unary(work.unary(size, "reciprocal"), "neg"), far)
    by_middle = work.binary("div", work.affine(size, 1.0, -1.0), work.affine(size, 1.0, 1.0))
    reduced = work.add(by_far, work.binary("mul_nonzero", by_middle, middle), work.binary("mul_nonzero", size, near))
    square = work.unary(reduced, "square")
    series = work.affine(square, _ATAN[0], _ATAN[1])
    for coefficient in _ATAN[2:]:
        series = work.affine(work.binary("mul", series, square), 1.0, coefficient)
    angle = work.binary("add", reduced, work.binary("mul", reduced, work.binary("mul", square, series)))
    angle = work.add(angle, work.affine(far, math.pi / 2), work.affine(middle, math.pi / 4))
    return work.binary("mul", angle, work.unary(x, "sign"))


def _asin(call: NodeCall, x: int) -> int:
    work = call.work
    root = work.unary(work.affine(work.unary(x, "square"), -1.0, 1.0), "sqrt")
    return _atan(call, work.binary("div", x, root))


def _acos(call: NodeCall, x: int) -> int:
    return call.work.affine(_asin(call, x), -1.0, math.pi / 2)


_FUNCTIONS: dict[str, Function] = {
    "Abs": unary("abs"),
    "Exp": unary("exp"),
    "Log": unary("log"),
    "Neg": unary("neg"),
    "Sqrt": unary("sqrt"),
    "Reciprocal": unary("reciprocal"),
    "Sign": unary("sign"),
    "Floor": unary("floor"),
    "Sin": unary("sin"),
    "Cos": unary("cos"),
    "Tanh": unary("tanh"),
    "Sigmoid": unary("sigmoid"),
    "Relu": unary("relu"),
    "Erf": unary("erf"),
    "Ceil": lambda call, x: call.work.unary(call.work.unary(call.work.unary(x, "neg"), "floor"), "neg"),
    "Round": round_even,
    "Elu": _with_alpha(_elu, 1.0),
    "Celu": _with_alpha(_celu, 1.0),
    "LeakyRelu": _with_alpha(_leaky, 0.01),
    "ThresholdedRelu": _with_alpha(_thresholded, 1.0),
    "Swish": _with_alpha(_swish, 1.0),
    "com.microsoft:QuickGelu": _with_alpha(_swish, 1.702),
    "Selu": _selu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Mish": _mish,
    "Gelu": _gelu,
    "com.microsoft:Gelu": _gelu,
    "Shrink": _shrink,
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Tan": _tan,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": _atanh,
    "Atan": _atan,
    "Asin": _asin,
    "Acos": _acos,
}


def _register(name: str, function: Function) -> None:
    @operator(name)
    def emit(call: NodeCall, x: OnnxValue) -> OnnxValue:
        return call.result(function(call, call.tensor(x)), x.dtype, x.shape)


for _name, _function in _FUNCTIONS.items():
    _register(_name, _function)
