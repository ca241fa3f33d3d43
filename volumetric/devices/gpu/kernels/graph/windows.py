"""Sliding windows over images: copied out of them, summed back, and pooled."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    LoweredNode,
    LoweringRequest,
    launch,
    one_each,
    result,
    single_launch,
    source,
    workgroup_size,
)

_LONG = 32
"""Taps from which several invocations share a window."""
_LEAST = 4
"""Minimum taps of each of them."""
_NEIGHBOURS = 8
"""Invocations that share a long window at least: they read neighbouring elements, a sector of the memory."""
_CHUNK = 8
"""Maximum elements that an invocation reads before it uses them."""


def unfold(request: LoweringRequest) -> LoweredNode:
    """Windows of images as columns."""
    return _each_element(request, request.inputs[0], {"x": source(0), "y": result()})


def fold(request: LoweringRequest) -> LoweredNode:
    """Columns summed into images."""
    return _each_element(request, request.outputs[0], {"x": source(0), "y": result()})


def pool_max(request: LoweringRequest) -> LoweredNode:
    """Largest elements of windows, and their taps."""
    return _each_window(request, {"x": source(0), "y": result(), "tap": result(1)})


def pool_max_grad(request: LoweringRequest) -> LoweredNode:
    """Add numbers of windows at the taps of their largest elements."""
    return _each_place(request, {"g": source(0), "tap": source(1), "y": result()})


def pool_sum(request: LoweringRequest) -> LoweredNode:
    """Sums of windows."""
    return _each_window(request, {"x": source(0), "y": result()})


def pool_spread(request: LoweringRequest) -> LoweredNode:
    """Add numbers of windows at all of their elements."""
    return _each_place(request, {"x": source(0), "y": result()})


def _each_window(request: LoweringRequest, buffers: Mapping[str, BufferRef]) -> LoweredNode:
    """Return the launch of a pool: a team of invocations for each window."""
    caps, taps = request.caps, prod(request.attrs["kernel"])
    team = pool_team(request.out_size, taps, caps)
    workgroup = workgroup_size(caps)
    return single_launch(
        launch(
            request.op,
            ceil_div(request.out_size, workgroup // team),
            buffers,
            _dims(request, request.inputs[0]),
            constants={**_constants(request), "TEAM": team, "CHUNK": _chunk(ceil_div(taps, team), caps)},
            preludes=("graph/windows",),
            workgroup=workgroup,
        )
    )


def _each_place(request: LoweringRequest, buffers: Mapping[str, BufferRef]) -> LoweredNode:
    """Return the launch of a pool's gradient: an invocation for each element of the images."""
    attrs = request.attrs
    along = zip(attrs["kernel"], attrs["dilation"], attrs["stride"], strict=True)
    chunk = _chunk(prod((kernel - 1) * dilation // stride + 1 for kernel, dilation, stride in along), request.caps)
    return _each_element(request, request.outputs[0], buffers, CHUNK=chunk)


def _each_element(
    request: LoweringRequest, image: Shape, buffers: Mapping[str, BufferRef], **constants: Constant
) -> LoweredNode:
    """Return a launch with an invocation for each element of the result."""
    constants = {**_constants(request), **constants}
    dims, preludes = _dims(request, image), ("graph/windows",)
    one = one_each(request.op, request.out_size, request.caps, buffers, dims, constants=constants, preludes=preludes)
    return single_launch(one)


def pool_team(windows: int, taps: int, caps: Caps) -> int:
    """Invocations that share a window: 1 of a short one, else as many as keep the device busy."""
    if taps < _LONG:
        return 1
    busy = max(_NEIGHBOURS, 2 * caps.invocations // windows)
    return 1 << (min(workgroup_size(caps), taps // _LEAST, busy).bit_length() - 1)


def _chunk(count: int, caps: Caps) -> int:
    """Return how many of `count` elements an invocation reads at once, so that few reads are wasted."""
    return ceil_div(count, ceil_div(count, min(_CHUNK, caps.unroll)))


def _constants(request: LoweringRequest) -> dict[str, Constant]:
    constants: dict[str, Constant] = {}
    for name in ("kernel", "stride", "dilation"):
        values = request.attrs[name]
        for axis, value in enumerate((*(1,) * (3 - len(values)), *values)):
            constants[f"{name.upper()}_{axis}"] = int(value)
    return constants


def _dims(request: LoweringRequest, image: Shape) -> list[int]:
    attrs = request.attrs
    dims = [request.out_size, image[1], prod(attrs["counts"]), 0]
    for values, missing in ((image[2:], 1), (attrs["before"], 0), (attrs["counts"], 1)):
        dims += [*[missing] * (3 - len(values)), *values, 0]
    return dims
