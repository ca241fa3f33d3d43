"""Rules of convolutions: windows as columns, and a product for each sample and group."""

from __future__ import annotations

from math import prod

from volumetric._typing import Shape
from volumetric.layers.conv import Conv, Spatial
from volumetric.layers.conv_transpose import ConvTranspose
from volumetric.runtime.graph.rules.base import Scope, rule


def _finish(scope: Scope, spec: Spatial, p: dict[str, int], y: int, shape: Shape) -> int:
    """Add the bias to ``[N, channels, pixels]``, apply the activation, and give the result its shape."""
    work = scope.work
    if spec.bias:
        y = work.binary("add", y, work.reshape(p["bias"], (1, spec.out_channels, 1)))
    return work.reshape(work.unary(y, spec.activation), shape)


def _windows(spec: Spatial, counts: Shape) -> dict[str, Shape]:
    windows = spec.windows()
    return {
        "kernel": windows.kernel,
        "stride": windows.stride,
        "dilation": windows.dilation,
        "before": windows.before,
        "counts": counts,
    }


@rule("conv1d", "conv2d", "conv3d")
def _conv(scope: Scope, spec: Conv, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    samples, channels, *sizes = work.shape(x)
    shape = spec.output_shape(work.shape(x))
    counts, taps = shape[2:], prod(spec.windows().kernel)
    pixels, deep, groups = prod(counts), channels // spec.groups * taps, spec.groups
    weight = work.reshape(p["weight"], (groups, spec.out_channels // groups, deep))
    if taps == 1 and tuple(sizes) == counts and not any(spec.windows().before):
        columns = x  # each pixel is its own window
    else:
        columns = work.unfold(x, **_windows(spec, counts))
    product = work.gemm(weight, work.reshape(columns, (samples * groups, deep, pixels)), groups=samples * groups)
    return _finish(scope, spec, p, work.reshape(product, (samples, spec.out_channels, pixels)), shape)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(scope: Scope, spec: ConvTranspose, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    samples, channels, *counts = work.shape(x)
    shape = spec.output_shape(work.shape(x))
    taps, pixels, groups = prod(spec.windows().kernel), prod(counts), spec.groups
    deep = spec.out_channels // groups * taps
    weight = work.reshape(p["weight"], (groups, channels // groups, deep))
    parts = work.reshape(x, (samples * groups, channels // groups, pixels))
    columns = work.gemm(weight, parts, trans_a=True, groups=samples * groups)
    columns = work.reshape(columns, (samples, spec.out_channels * taps, pixels))
    image = work.fold(columns, shape[2:], **_windows(spec, tuple(counts)))
    return _finish(scope, spec, p, work.reshape(image, (samples, spec.out_channels, prod(shape[2:]))), shape)
