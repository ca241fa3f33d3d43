"""Element-wise operations: functions, their gradients, and pairs with broadcasting."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    LoweredNode,
    LoweringRequest,
    elements,
    one_each,
    result,
    single_launch,
    source,
    unsupported,
)
from volumetric.graph.numeric.counter_noise import threshold_of
from volumetric.graph.strides import StridedAxis, broadcast_strides, merge_strided_axes, pad_to

_AXES = 4


def unary(request: LoweringRequest) -> LoweredNode:
    """``y = f(x)``."""
    attrs, count = request.attrs, request.out_size
    buffers = {"x": source(0), "y": result()}
    return single_launch(
        elements(
            "elementwise",
            count,
            request.caps,
            buffers,
            (count, float(attrs["alpha"]), float(attrs["beta"])),
            preludes=(f"unary/{attrs['name']}", "graph/forward"),
        )
    )


def dropout(request: LoweringRequest) -> LoweredNode:
    """Scale some elements; set the others to 0."""
    count, p = request.out_size, request.attrs["p"]
    dims = (count, request.attrs["stream"], threshold_of(p), 0.0 if p == 1 else 1 / (1 - p))
    buffers = {"x": source(0), "key": source(1), "y": result()}
    return single_launch(one_each("dropout", count, request.caps, buffers, dims, preludes=("graph/hash",)))


def gumbel(request: LoweringRequest) -> LoweredNode:
    """Add noise derived from place and position."""
    count, width, seed = request.out_size, request.outputs[0][1], request.attrs["seed"]
    dims = (count, width, seed % (1 << 32), (seed >> 32) % (1 << 32))
    buffers = {"x": source(0), "positions": source(1), "y": result()}
    return single_launch(one_each("gumbel", count, request.caps, buffers, dims, preludes=("graph/hash",)))


def normal(request: LoweringRequest) -> LoweredNode:
    """Add noise derived from element numbers."""
    count, attrs = request.out_size, request.attrs
    dims = (count, attrs["stream"], attrs["first"] % (1 << 32))
    buffers = {"x": source(0), "key": source(1), "y": result()}
    return single_launch(one_each("normal", count, request.caps, buffers, dims, preludes=("graph/hash",)))


def unary_grad(request: LoweringRequest) -> LoweredNode:
    """``g f'(x)``."""
    count = request.out_size
    buffers = {"g": source(0), "x": source(1), "y": result()}
    preludes = (f"graph/slope/{request.attrs['name']}", "graph/backward")
    return single_launch(elements("elementwise", count, request.caps, buffers, (count, 1.0, 0.0), preludes=preludes))


def binary(request: LoweringRequest) -> LoweredNode:
    """``c = f(a, b)`` with broadcasting."""
    shape = request.outputs[0]
    steps = [broadcast_strides(operand, shape) for operand in request.inputs]
    axes = merge_strided_axes(
        [StridedAxis(size=n, steps=pair) for n, pair in zip(shape, zip(*steps, strict=True), strict=True)]
    )
    if len(axes) > _AXES:
        raise unsupported("binary", f"{len(axes)} separately broadcast axes")
    count = request.out_size
    dims = [count, 0, 0, 0, *pad_to([axis.size for axis in axes], _AXES, 1)]
    for side in (0, 1):
        dims += pad_to([axis.steps[side] for axis in axes], _AXES)
    return single_launch(
        elements(
            "binary",
            count,
            request.caps,
            {"a": source(0), "b": source(1), "y": result()},
            dims,
            constants={"RANK": len(axes)},
            preludes=(f"graph/binary/{request.attrs['name']}",),
        )
    )
