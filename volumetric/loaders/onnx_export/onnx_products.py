"""Translation of matrix products with groups."""

from __future__ import annotations

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_elementwise import write_activation
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import RowSize, Size, Sizes


@translates("gemm")
def _gemm(writer: OnnxWriter, of: Operands) -> str:
    y = _convolution(writer, of) or _product(writer, of)
    if len(of.inputs) == 3 and not _is_flat(of):
        bias, shape = of.inputs[2], of.shapes[2]
        bias = bias if len(shape) == 1 else writer.reshape(bias, shape, (shape[0], 1, shape[1]))
        y = writer.node("Add", y, bias)
    return write_activation(writer, y, of.attrs["activation"])


def _is_flat(of: Operands) -> bool:
    """Return whether both operands are one group, and the product is a Gemm."""
    return of.shapes[0][0] == of.shapes[1][0] == of.attrs["groups"] == 1 and len(of.results[0]) == 3


def _product(writer: OnnxWriter, of: Operands) -> str:
    (a, b), (left, right) = of.inputs[:2], of.shapes[:2]
    if _is_flat(of):
        names = [writer.reshape(x, shape, shape[1:]) for x, shape in ((a, left), (b, right))]
        bias = [writer.reshape(of.inputs[2], of.shapes[2], of.shapes[2][-1:])] if len(of.inputs) == 3 else []
        flags = {"transA": int(of.attrs["trans_a"]), "transB": int(of.attrs["trans_b"])}
        y = writer.node("Gemm", *names, *bias, **{k: v for k, v in flags.items() if v})
        writer.notes[y] = ("gemm", *names, *bias) if flags == {"transA": 0, "transB": 1} else ("product",)
        return writer.reshape(y, of.results[0][1:], of.results[0])
    groups = of.attrs["groups"]
    sides = [
        _transposed(writer, x, shape) if transposed else (x, shape)
        for x, shape, transposed in ((a, left, of.attrs["trans_a"]), (b, right, of.attrs["trans_b"]))
    ]
    counts = [shape[0] for _, shape in sides]
    if all(count in (1, groups) for count in counts) and groups in counts:
        return writer.node("MatMul", *(x for x, _ in sides))
    if groups == 1 and counts[0] == counts[1]:  # one product of the groups side by side
        return writer.node("ReduceSum", writer.node("MatMul", *(x for x, _ in sides)), writer.ints(0), keepdims=1)
    if groups not in counts:
        raise UnsupportedError(f"ONNX export: a product of {counts} groups that sums to {groups} groups")
    few = next(count for count in counts if count != groups)  # groups are cyclic: an axis of repetitions before them
    apart = [writer.reshape(x, shape, (_ratio(shape[0], few), few, *shape[1:])) for x, shape in sides]
    y = writer.node("MatMul", *apart)
    return writer.reshape(y, (_ratio(groups, few), few, *of.results[0][1:]), of.results[0])


def _transposed(writer: OnnxWriter, x: str, shape: Sizes) -> tuple[str, Sizes]:
    return writer.node("Transpose", x, perm=[0, 2, 1]), (shape[0], shape[2], shape[1])


def _ratio(size: Size, by: Size) -> Size:
    """Return how often `by` fits into a size that it divides for any number of rows."""
    if isinstance(size, RowSize) and isinstance(by, RowSize):
        times = size.rate // by.rate
        if (by.base * times, by.rate * times) == (size.base, size.rate):
            return times
    elif isinstance(by, int) and isinstance(size, RowSize):
        if size.base % by == size.rate % by == 0:
            return RowSize(size.base // by, size.rate // by)
    elif isinstance(by, int) and isinstance(size, int) and size % by == 0:
        return size // by
    raise UnsupportedError(f"ONNX export: groups of {size} and {by} products")


def _convolution(writer: OnnxWriter, of: Operands) -> str | None:
    """Write a product with the windows of an image as a convolution; None: it is no such product."""
    weight, columns, *_ = of.inputs
    note = writer.notes.get(writer.source_of(columns), ())
    if note[:1] != ("windows",) or of.attrs["trans_a"] or of.attrs["trans_b"] or of.attrs["groups"] != of.shapes[1][0]:
        return None
    _, x, (samples, channels), window_attrs, counts = note
    groups, wide, _ = of.shapes[0]
    if not isinstance(groups, int) or not isinstance(wide, int) or of.shapes[1][0] != _times(samples, groups):
        return None
    kernel = tuple(window_attrs["kernel_shape"])
    weight = writer.reshape(weight, of.shapes[0], (groups * wide, channels // groups, *kernel))
    y = writer.node("Conv", x, weight, group=groups, **window_attrs)
    return writer.reshape(y, (samples, groups * wide, *counts), of.results[0])


def _times(size: Size, factor: int) -> Size:
    return RowSize(size.base * factor, size.rate * factor) if isinstance(size, RowSize) else size * factor
