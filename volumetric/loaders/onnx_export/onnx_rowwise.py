"""Translations of operations on rows: norms, softmax and its sparse variants, the largest elements, lookups."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter

_HALVINGS: Final = 64
"""Bisections of the threshold of entmax, as in `volumetric.graph.operations.rows`."""


def write_rms(writer: OnnxWriter, x: str, eps: float) -> str:
    """Write ``x / √(mean(x²) + eps)`` over the last axis."""
    square = writer.node("ReduceMean", writer.node("Mul", x, x), writer.ints(-1), keepdims=1)
    root = writer.node("Sqrt", writer.node("Add", square, writer.number(eps)))
    return writer.node("Div", x, root)


def write_norm(
    writer: OnnxWriter, x: str, width: int, kind: str, eps: float, gain: str | None, bias: str | None
) -> str:
    """Write an RMSNorm or LayerNorm over the last axis of `width` elements."""
    if kind == "layer":
        scale = writer.constant(np.ones(width, np.float32)) if gain is None else gain
        return writer.node("LayerNormalization", x, scale, *([] if bias is None else [bias]), axis=-1, epsilon=eps)
    y = write_rms(writer, x, eps)
    y = y if gain is None else writer.node("Mul", y, gain)
    return y if bias is None else writer.node("Add", y, bias)


def gain_of(writer: OnnxWriter, gain: str | None, unit_offset: bool) -> str | None:
    """Return the gain of a norm, which is 1 + w with `unit_offset`."""
    return writer.node("Add", gain, writer.number(1)) if gain is not None and unit_offset else gain


@translates("norm")
def _norm(writer: OnnxWriter, of: Operands) -> str:
    x, *vectors = of.inputs
    width: Any = of.shapes[0][1]
    gain = gain_of(writer, vectors[0] if vectors else None, of.attrs["unit_offset"])
    bias = vectors[1] if len(vectors) > 1 else None
    return write_norm(writer, x, width, of.attrs["kind"], of.attrs["eps"], gain, bias)


def _top(writer: OnnxWriter, x: str) -> str:
    """Return the largest element of each row, 0 for rows of -inf."""
    top = writer.node("ReduceMax", x, writer.ints(-1), keepdims=1)
    infinite = writer.node("IsInf", top, detect_positive=0)
    return writer.node("Where", infinite, writer.number(0), top)


def write_masked_softmax(writer: OnnxWriter, x: str) -> str:
    """Write a softmax whose rows of -inf become zeros."""
    e = writer.node("Exp", writer.node("Sub", x, _top(writer, x)))
    total = writer.node("ReduceSum", e, writer.ints(-1), keepdims=1)
    empty = writer.node("Equal", total, writer.number(0))
    return writer.node("Div", e, writer.node("Where", empty, writer.number(1), total))


@translates("softmax")
def _softmax(writer: OnnxWriter, of: Operands) -> str:
    x = of.inputs[0]
    if writer.notes.get(writer.source_of(x)) == ("masked",):
        return write_masked_softmax(writer, x)
    return writer.node("Softmax", x, axis=-1)


@translates("keep_largest")
def _keep_largest(writer: OnnxWriter, of: Operands) -> str:
    x, (_, width) = of.inputs[0], of.shapes[0]
    if of.attrs["k"] == width:
        return x
    _, places = writer.nodes_of("TopK", (x, writer.ints(of.attrs["k"])), 2, axis=-1)
    ones = writer.node("Expand", writer.number(1), writer.node("Shape", places))
    zeros = writer.node("Expand", writer.number(0), writer.node("Shape", x))
    chosen = writer.node("ScatterElements", zeros, places, ones, axis=-1)
    return writer.node("Where", writer.cast(chosen, "BOOL"), x, writer.number(-np.inf))


def _double(writer: OnnxWriter, value: Any) -> str:
    return writer.constant(np.array(value, np.float64))


def _without_top(writer: OnnxWriter, x: str) -> str:
    """Return rows in float64, shifted so that the largest element is 0; rows of -inf stay."""
    return writer.cast(writer.node("Sub", x, _top(writer, x)), "DOUBLE")


@translates("entmax")
def _entmax(writer: OnnxWriter, of: Operands) -> str:
    x, width = of.inputs[0], of.shapes[0][1]
    z = _without_top(writer, x)
    y = _sparsemax(writer, z, width) if of.attrs["alpha"] == 2 else _bisected(writer, z, width, of.attrs["alpha"])
    return writer.cast(y, "FLOAT")


def _sparsemax(writer: OnnxWriter, z: str, width: Any) -> str:
    """Write ``max(z - τ, 0)`` with the threshold of the sorted row, Martins & Astudillo 2016, algorithm 1."""
    falling, _ = writer.nodes_of("TopK", (z, writer.ints(width)), 2, axis=-1)
    total = writer.node("CumSum", falling, writer.constant(np.array(1, np.int64)))
    counts = _double(writer, np.arange(1.0, width + 1))
    first = writer.node("Add", writer.node("Mul", counts, falling), _double(writer, 1.0))
    inside = writer.cast(writer.node("Greater", first, total), "INT64")
    size = writer.node("ReduceSum", inside, writer.ints(-1), keepdims=1)
    one = writer.constant(np.array(1, np.int64))
    at_least = writer.node("Max", size, one)
    at_end = writer.node("GatherElements", total, writer.node("Sub", at_least, one), axis=-1)
    threshold = writer.node("Div", writer.node("Sub", at_end, _double(writer, 1.0)), writer.cast(at_least, "DOUBLE"))
    none = writer.node("Equal", size, writer.constant(np.array(0, np.int64)))
    threshold = writer.node("Where", none, _double(writer, 0.0), threshold)
    return writer.node("Max", writer.node("Sub", z, threshold), _double(writer, 0.0))


def _bisected(writer: OnnxWriter, z: str, width: Any, alpha: float) -> str:
    """Write α-entmax with the threshold by bisection, as `volumetric.graph.operations.rows.entmax` does."""
    from onnx import TensorProto, helper

    z, power = writer.node("Mul", z, _double(writer, alpha - 1)), _double(writer, 1 / (alpha - 1))
    zero, half = _double(writer, 0.0), _double(writer, 0.5)
    shape = writer.node("Shape", writer.node("ReduceSum", z, writer.ints(-1), keepdims=1))
    low = writer.node("Expand", _double(writer, -1.0), shape)
    high = writer.node("Expand", _double(writer, -(float(width) ** (1 - alpha))), shape)
    body = writer.body()
    names = [body.name(hint) for hint in ("step", "go", "low", "high")]

    def raised(inner: OnnxWriter, threshold: str) -> str:
        return inner.node("Pow", inner.node("Max", inner.node("Sub", z, threshold), zero), power)

    middle = body.node("Mul", body.node("Add", names[2], names[3]), half)
    total = body.node("ReduceSum", raised(body, middle), body.ints(-1), keepdims=1)
    enough = body.node("GreaterOrEqual", total, _double(writer, 1.0))
    after = [body.node("Where", enough, middle, names[2]), body.node("Where", enough, names[3], middle)]
    go = body.node("Identity", names[1])
    kinds = (TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.DOUBLE)
    shapes = ([], [], None, None)
    inputs = [helper.make_tensor_value_info(*each) for each in zip(names, kinds, shapes, strict=True)]
    ends = zip((go, *after), kinds[1:], shapes[1:], strict=True)
    outputs = [helper.make_tensor_value_info(*each) for each in ends]
    graph = helper.make_graph(body.nodes, "bisect", inputs, outputs)
    count, always = writer.constant(np.array(_HALVINGS, np.int64)), writer.constant(np.array(True))
    low, _ = writer.nodes_of("Loop", (count, always, low, high), 2, body=graph)
    y = raised(writer, low)
    total = writer.node("ReduceSum", y, writer.ints(-1), keepdims=1)
    empty = writer.node("Equal", total, zero)
    return writer.node("Div", y, writer.node("Where", empty, _double(writer, 1.0), total))


@translates("gather_rows")
def _gather_rows(writer: OnnxWriter, of: Operands) -> str:
    return writer.node("Gather", *of.inputs, axis=0)
