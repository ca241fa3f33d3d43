"""Convolutions and transposed convolutions."""

from __future__ import annotations

from math import prod

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.operator_table import operator


def window_fields(call: NodeCall, sizes: Shape, kernel: Shape) -> tuple[Shape, Shape, Shape, Shape]:
    """Return stride, dilation, and padding before and after, from the attributes."""
    axes = len(sizes)
    stride = call.numbers("strides") or (1,) * axes
    dilation = call.numbers("dilations") or (1,) * axes
    pads = call.numbers("pads") or (0,) * (2 * axes)
    auto = call.attribute("auto_pad", "NOTSET")
    if not len(stride) == len(dilation) == len(kernel) == axes or len(pads) != 2 * axes:
        raise ShapeError(f"{call.label}: its attributes are not for {axes} spatial axes")
    if auto == "VALID":
        pads = (0,) * (2 * axes)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        whole = [
            max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            for n, s, d, k in zip(sizes, stride, dilation, kernel, strict=True)
        ]
        small, large = [t // 2 for t in whole], [t - t // 2 for t in whole]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    return stride, dilation, tuple(pads[:axes]), tuple(pads[axes:])


def convolve(call: NodeCall, x: int, weight: int, bias: int | None) -> int:
    """Emit a convolution ``[N, C, *sizes]`` with ``[F, C / groups, *kernel]``."""
    work = call.work
    samples, channels, *sizes = work.shape(x)
    filters, deep, *kernel = work.shape(weight)
    groups, taps = int(call.attribute("group", 1)), prod(kernel)
    if deep * groups != channels or filters % groups:
        raise ShapeError(f"{call.label}: {filters} filters of {deep} channels do not fit {channels} in {groups} groups")
    stride, dilation, before, after = window_fields(call, tuple(sizes), tuple(kernel))
    if min(*before, *after) < 0:
        cut = [max(-b, 0) for b in before], [n - max(-a, 0) for n, a in zip(sizes, after, strict=True)]
        x = work.slice(x, (0, 0, *cut[0]), (samples, channels, *cut[1]))
        before, after = (tuple(max(n, 0) for n in side) for side in (before, after))
        sizes = work.shape(x)[2:]
    axes = zip(sizes, kernel, stride, dilation, before, after, strict=True)
    counts = tuple((n + b + a - d * (k - 1) - 1) // s + 1 for n, k, s, d, b, a in axes)
    if min(counts) < 1:
        raise ShapeError(f"{call.label}: a kernel of {kernel} does not fit {list(sizes)}")
    pixels = prod(counts)
    if taps == 1 and counts == tuple(sizes) and not any(before):
        columns = x
    else:
        windows = {"kernel": tuple(kernel), "stride": stride, "dilation": dilation, "before": before, "counts": counts}
        columns = work.unfold(x, **windows)
    columns = work.reshape(columns, (samples * groups, deep * taps, pixels))
    kernels = work.reshape(weight, (groups, filters // groups, deep * taps))
    y = work.reshape(work.gemm(kernels, columns, groups=samples * groups), (samples, filters, pixels))
    if bias is not None:
        y = work.binary("add", y, work.reshape(bias, (1, filters, 1)))
    return work.reshape(y, (samples, filters, *counts))


@operator("Conv")
def _conv(call: NodeCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None) -> OnnxValue:
    axes = len(x.shape) - 2
    if not 1 <= axes <= 3:
        raise call.refuse(f"a convolution over {axes} axes", hint="1 to 3 axes are supported")
    return call.result(
        convolve(call, call.tensor(x), call.tensor(weight), None if bias is None else call.tensor(bias)), x.dtype
    )


@operator("ConvTranspose")
def _conv_transpose(call: NodeCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None) -> OnnxValue:
    """Emit the transpose of a convolution: the whole image, of which the padding is cut off."""
    work = call.work
    samples, channels, *counts = x.shape
    _, wide, *kernel = weight.shape
    axes, groups, taps = len(counts), int(call.attribute("group", 1)), prod(kernel)
    if not 1 <= axes <= 3:
        raise call.refuse(f"a convolution over {axes} axes", hint="1 to 3 axes are supported")
    stride = call.numbers("strides") or (1,) * axes
    dilation = call.numbers("dilations") or (1,) * axes
    extra = call.numbers("output_padding") or (0,) * axes
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    full = [s * (n - 1) + span + e for s, n, span, e in zip(stride, counts, spans, extra, strict=True)]
    before, sizes = _transposed_sizes(call, full, stride, tuple(counts))
    # The whole image first: windows may lie in padding alone.
    deep = wide * taps
    kernels = work.reshape(call.tensor(weight), (groups, channels // groups, deep))
    parts = work.reshape(call.tensor(x), (samples * groups, channels // groups, prod(counts)))
    columns = work.gemm(kernels, parts, trans_a=True, groups=samples * groups)
    columns = work.reshape(columns, (samples, groups * deep, prod(counts)))
    windows = {"kernel": tuple(kernel), "stride": stride, "dilation": dilation, "before": (0,) * axes}
    image = work.fold(columns, tuple(full), counts=tuple(counts), **windows)
    missing = [max(b + n - f, 0) for b, n, f in zip(before, sizes, full, strict=True)]
    image = work.pad(image, (0,) * (2 + axes), (0, 0, *missing))
    image = work.slice(
        image, (0, 0, *before), (samples, groups * wide, *(b + n for b, n in zip(before, sizes, strict=True)))
    )
    if bias is not None:
        image = work.binary("add", image, work.reshape(call.tensor(bias), (1, groups * wide, *(1,) * axes)))
    return call.result(image, x.dtype)


def _transposed_sizes(call: NodeCall, full: list[int], stride: Shape, counts: Shape) -> tuple[list[int], list[int]]:
    """Return what is cut off at the beginning, and the sizes that remain."""
    axes = len(full)
    auto, shape = call.attribute("auto_pad", "NOTSET"), call.numbers("output_shape")
    pads = call.numbers("pads") or (0,) * (2 * axes)
    if shape is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = shape[-axes:] if shape is not None else [n * s for n, s in zip(counts, stride, strict=True)]
        total = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
        if auto == "SAME_UPPER":
            before = [t // 2 for t in total]
        else:
            before = [t - t // 2 for t in total]
        return before, list(wanted)
    return list(pads[:axes]), [f - b - a for f, b, a in zip(full, pads[:axes], pads[axes:], strict=True)]


@operator("Col2Im", static=(1, 2))
def _col2im(call: NodeCall, x: OnnxValue, image: OnnxValue, block: OnnxValue) -> OnnxValue:
    sizes, kernel = call.ints(image, "the sizes"), call.ints(block, "the kernel")
    if len(sizes) > 3:
        raise call.refuse(f"an image of {len(sizes)} axes", hint="1 to 3 axes are supported")
    stride, dilation, before, after = window_fields(call, sizes, kernel)
    axes = zip(sizes, kernel, stride, dilation, before, after, strict=True)
    counts = tuple((n + b + a - d * (k - 1) - 1) // s + 1 for n, k, s, d, b, a in axes)
    windows = {"kernel": kernel, "stride": stride, "dilation": dilation, "before": before, "counts": counts}
    return call.result(call.work.fold(call.tensor(x), sizes, **windows), x.dtype)
