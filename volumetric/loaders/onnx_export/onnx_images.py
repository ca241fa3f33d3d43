"""Translations of windows over images: unfolding, folding, pools and causal convolutions."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import Sizes

_END: Final = np.iinfo(np.int64).max


def _window_attrs(of: Operands) -> dict[str, list[int]]:
    return {
        "kernel_shape": list(of.attrs["kernel"]),
        "strides": list(of.attrs["stride"]),
        "dilations": list(of.attrs["dilation"]),
    }


def _spans(of: Operands) -> list[int]:
    """Return the elements that all windows together span along each axis."""
    each = zip(*(of.attrs[name] for name in ("kernel", "stride", "dilation", "counts")), strict=True)
    return [d * (k - 1) + s * (n - 1) + 1 for k, s, d, n in each]


def _framed(writer: OnnxWriter, of: Operands, fill: float) -> str:
    """Return the image padded or cut to exactly what the windows span."""
    x, before, spans = of.inputs[0], of.attrs["before"], _spans(of)
    sizes: Any = of.shapes[0][2:]
    after = [span - b - size for span, b, size in zip(spans, before, sizes, strict=True)]
    cut = [axis for axis, extra in enumerate(after) if extra < 0]
    if cut:
        stops = writer.ints(*(spans[axis] - before[axis] for axis in cut))
        x = writer.node("Slice", x, writer.ints(*(0 for _ in cut)), stops, writer.ints(*(axis + 2 for axis in cut)))
    if any(before) or any(extra > 0 for extra in after):
        pads = writer.ints(0, 0, *before, 0, 0, *(max(extra, 0) for extra in after))
        x = writer.node("Pad", x, pads, writer.number(fill))
    return x


def _taps(writer: OnnxWriter, channels: int, kernel: tuple[int, ...]) -> str:
    """Return a weight with one filter for each channel and tap, which copies the element under the tap."""
    count = prod(kernel)
    one = np.eye(count, dtype=np.float32).reshape(count, 1, *kernel)
    return writer.constant(np.tile(one, (channels, *(1 for _ in one.shape[1:]))))


@translates("unfold")
def _unfold(writer: OnnxWriter, of: Operands) -> str:
    samples, channels, *sizes = of.shapes[0]
    attrs, counts = _window_attrs(of), tuple(of.attrs["counts"])
    if not isinstance(channels, int):
        raise UnsupportedError("ONNX export of channels depend on rows")
    after = [span - b - size for span, b, size in zip(_spans(of), of.attrs["before"], sizes, strict=True)]  # pyright: ignore[reportOperatorIssue]
    if min(after) < 0:
        x, pads = _framed(writer, of, 0.0), [0] * (2 * len(counts))
    else:
        x, pads = of.inputs[0], [*of.attrs["before"], *after]
    attrs = {**attrs, "pads": pads}
    y = writer.node("Conv", x, _taps(writer, channels, of.attrs["kernel"]), group=channels, **attrs)
    deep = channels * prod(of.attrs["kernel"])
    columns = writer.reshape(y, (samples, deep, *counts), of.results[0])
    # A product with the columns becomes a convolution of the image, and this one is dropped.
    writer.notes[writer.source_of(columns)] = ("windows", x, (samples, channels), attrs, counts)
    return columns


@translates("fold")
def _fold(writer: OnnxWriter, of: Operands) -> str:
    samples, deep, _ = of.shapes[0]
    kernel, sizes, before = of.attrs["kernel"], of.attrs["sizes"], of.attrs["before"]
    if not isinstance(deep, int):
        raise UnsupportedError("ONNX export of channels depend on rows")
    columns = writer.reshape(of.inputs[0], of.shapes[0], (samples, deep, *of.attrs["counts"]))
    channels = deep // prod(kernel)
    y = writer.node("ConvTranspose", columns, _taps(writer, channels, kernel), group=channels, **_window_attrs(of))
    spans = _spans(of)
    after = [b + size - span for span, b, size in zip(spans, before, sizes, strict=True)]
    if any(extra > 0 for extra in after):
        zeros = [0] * (2 + len(sizes))
        y = writer.node("Pad", y, writer.ints(*zeros, 0, 0, *(max(extra, 0) for extra in after)))
    if any(before) or any(extra < 0 for extra in after):
        axes = range(2, 2 + len(sizes))
        stops = writer.ints(*(b + size for b, size in zip(before, sizes, strict=True)))
        y = writer.node("Slice", y, writer.ints(*before), stops, writer.ints(*axes))
    return y


@translates("pool_max")
def _pool_max(writer: OnnxWriter, of: Operands) -> str:
    return writer.node("MaxPool", _framed(writer, of, -np.inf), **_window_attrs(of))


@translates("pool_sum")
def _pool_sum(writer: OnnxWriter, of: Operands) -> str:
    mean = writer.node("AveragePool", _framed(writer, of, 0.0), **_window_attrs(of))
    return writer.node("Mul", mean, writer.number(prod(of.attrs["kernel"])))


@translates("depthwise_conv")
def _depthwise_conv(writer: OnnxWriter, of: Operands) -> str:
    x, weight, past, *bias = of.inputs
    if of.attrs["resets"]:
        raise UnsupportedError("ONNX export of resets within a call")
    channels: Any = of.shapes[0][2]
    every = writer.node("Transpose", writer.node("Concat", past, x, axis=1), perm=[0, 2, 1])
    y = writer.node("Conv", every, weight, *bias, group=channels, kernel_shape=[_taps_of(of.shapes[1])])
    return writer.node("Transpose", y, perm=[0, 2, 1])


def _taps_of(shape: Sizes) -> Any:
    return shape[2]
