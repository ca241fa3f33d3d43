"""Translations of element-wise operations: the formulas of activations, cells and binary functions as nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.formula.binary_functions import PAIRS
from volumetric.formula.elementary import EXPANDED
from volumetric.formula.expression import Expression, depends_on
from volumetric.formula.unary_functions import FUNCTIONS
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter

_WORDS: Final[Mapping[str, str]] = {
    **{name: name.capitalize() for name in ("add", "sub", "mul", "div", "neg", "less", "equal", "where", "exp", "log")},
    **{name: name.capitalize() for name in ("sqrt", "sin", "cos", "tanh", "abs", "sign", "floor", "sigmoid", "max")},
    "min": "Min",
    "softplus": "Softplus",
    "positive": "Relu",
    "at_most": "LessOrEqual",
    "either": "Or",
    "both": "And",
}
"""Operation of an expression → operator of ONNX."""


def write_expressions(writer: OnnxWriter, of: tuple[Expression, ...], names: Mapping[str, str]) -> list[str]:
    """Write expressions as nodes and return the names of their values; equal subexpressions are one.

    Parameters
    ----------
    names : variable → name of its value
    """
    written: dict[Expression, str] = {}

    def write(each: Expression) -> str:
        if each.op == "variable":
            return names[each.text]
        if each not in written:
            written[each] = _write_one(writer, each, write)
        return written[each]

    return [write(each) for each in of]


def _write_one(writer: OnnxWriter, of: Expression, write: Callable[[Expression], str]) -> str:
    if of.op == "constant":
        return writer.number(of.value)
    if of.op in EXPANDED:
        return write(EXPANDED[of.op](*of.args))
    if of.op == "log_of_one_plus":
        return writer.node("Log", writer.node("Add", write(of.args[0]), writer.number(1)))
    if of.op == "twice_normal":
        scaled = writer.node("Mul", write(of.args[0]), writer.number(math.sqrt(0.5)))
        return writer.node("Add", writer.node("Erf", scaled), writer.number(1))
    if of.op not in _WORDS:
        raise UnsupportedError(f"ONNX export has no operator for the function {of.op}")
    return writer.node(_WORDS[of.op], *(write(arg) for arg in of.args))


def write_activation(writer: OnnxWriter, x: str, name: str) -> str:
    """Write an activation, or another function of one number without attributes."""
    if name == "linear":
        return x
    if name in ("gelu", "gelu_tanh"):
        return writer.node("Gelu", x, approximate="tanh" if name == "gelu_tanh" else "none")
    if name == "leaky_relu":
        from volumetric.formula.unary_functions import LEAKY_SLOPE

        return writer.node("LeakyRelu", x, alpha=LEAKY_SLOPE)
    value = FUNCTIONS[name].value
    if not depends_on(value):
        return writer.node("Expand", writer.number(value.value), writer.node("Shape", x))
    return write_expressions(writer, (value,), {"x": x})[0]


@translates("unary")
def _unary(writer: OnnxWriter, of: Operands) -> str:
    x, name = of.inputs[0], of.attrs["name"]
    if name != "affine":
        return write_activation(writer, x, name)
    alpha, beta = (float(np.float32(of.attrs[each])) for each in ("alpha", "beta"))
    y = x if alpha == 1 else writer.node("Mul", x, writer.number(alpha))
    return y if beta == 0 else writer.node("Add", y, writer.number(beta))


@translates("binary")
def _binary(writer: OnnxWriter, of: Operands) -> str:
    a, b = of.inputs
    y = write_expressions(writer, (PAIRS[of.attrs["name"]].value,), {"a": a, "b": b})[0]
    if of.attrs["name"] == "mask":
        writer.notes[y] = ("masked",)
    return y
