"""Sliding windows over images: copied out of them, summed back, and pooled."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    LoweredNode,
    LoweringRequest,
    one_each,
    result,
    single_launch,
    source,
)


def unfold(request: LoweringRequest) -> LoweredNode:
    """Windows of images as columns."""
    return _lower(request, request.inputs[0], {"x": source(0), "y": result()})


def fold(request: LoweringRequest) -> LoweredNode:
    """Columns summed into images."""
    return _lower(request, request.outputs[0], {"x": source(0), "y": result()})


def pool_max(request: LoweringRequest) -> LoweredNode:
    """Largest elements of windows, and their taps."""
    buffers = {"x": source(0), "y": result(), "tap": result(1)}
    return _lower(request, request.inputs[0], buffers)


def pool_max_grad(request: LoweringRequest) -> LoweredNode:
    """Add numbers of windows at the taps of their largest elements."""
    return _lower(request, request.outputs[0], {"g": source(0), "tap": source(1), "y": result()})


def pool_sum(request: LoweringRequest) -> LoweredNode:
    """Sums of windows."""
    return _lower(request, request.inputs[0], {"x": source(0), "y": result()})


def pool_spread(request: LoweringRequest) -> LoweredNode:
    """Add numbers of windows at all of their elements."""
    return _lower(request, request.outputs[0], {"x": source(0), "y": result()})


def _lower(request: LoweringRequest, image: Shape, buffers: Mapping[str, BufferRef]) -> LoweredNode:
    attrs, count = request.attrs, request.out_size
    dims = [count, image[1], prod(attrs["kernel"]), prod(attrs["counts"])]
    for values, missing in (
        (image[2:], 1),
        (attrs["kernel"], 1),
        (attrs["stride"], 1),
        (attrs["dilation"], 1),
        (attrs["before"], 0),
        (attrs["counts"], 1),
    ):
        dims += [*[missing] * (3 - len(values)), *values, 0]
    return single_launch(one_each(request.op, count, request.caps, buffers, dims, preludes=("graph/windows",)))
