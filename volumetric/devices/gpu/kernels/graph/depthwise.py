"""Causal convolutions of channels, each with few taps of its own, and their gradients."""

from __future__ import annotations

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    LoweredNode,
    LoweringRequest,
    launch,
    one_each,
    result,
    scratch,
    single_launch,
    source,
)
from volumetric.devices.gpu.kernels.graph.reduce import column_split, sum_rows

MOST_TAPS = 8
"""Taps up to which an invocation has all of a channel in registers; with more, sums of shifted rows are emitted."""
_WORTH = 4
"""How many rows of a plain sum of columns one row of the gradient of taps is worth."""


def supports_taps(weight: Shape) -> bool:
    """Whether there are kernels for a weight ``[C, 1, taps]``."""
    return weight[-1] <= MOST_TAPS


def depthwise_conv(request: LoweringRequest) -> LoweredNode:
    """Sums of earlier rows by taps."""
    attrs, taps = request.attrs, request.inputs[1][2]
    _, length, width = request.inputs[0]
    buffers = {"x": source(0), "weight": source(1), "past": source(2), "y": result()}
    buffers |= {"bias": source(3)} if attrs["bias"] else {}
    buffers |= {"keep": source(len(request.inputs) - 1)} if attrs["resets"] else {}
    constants = {"TAPS": taps, "BIAS": attrs["bias"], "RESETS": attrs["resets"]}
    return single_launch(
        one_each(
            "depthwise_conv",
            request.out_size,
            request.caps,
            buffers,
            (request.out_size, length, width),
            constants=constants,
            preludes=("graph/depthwise_row",),
        )
    )


def depthwise_conv_grad(request: LoweringRequest) -> LoweredNode:
    """Gradients of rows, of the rows before them, of taps and of the bias."""
    caps, resets, (batch, length, width) = request.caps, request.attrs["resets"], request.inputs[0]
    taps, rows = request.inputs[2][2], batch * length
    keep = {"keep": source(4)} if resets else {}
    columns, workgroup, splits = column_split(width, _WORTH * rows, caps)
    splits = min(splits, max(rows, 1))
    whole = splits == 1
    sums = [result(1), result(3)] if whole else [scratch(0), scratch(1)]
    weights = launch(
        "depthwise_weight_grad",
        ceil_div(width, columns) * splits,
        {"x": source(1), "past": source(3), "g": source(0), "weight_sum": sums[0], "bias_sum": sums[1], **keep},
        (rows, length, width, ceil_div(rows, splits), splits),
        constants={"TAPS": taps, "RESETS": resets, "COLUMNS": columns},
        preludes=("graph/depthwise_row",),
        workgroup=workgroup,
    )
    joins = (
        []
        if whole
        else [
            sum_rows(splits, width * taps, caps, sums[0], result(1)),
            sum_rows(splits, width, caps, sums[1], result(3)),
        ]
    )
    count = batch * (length + taps - 1) * width
    moved = one_each(
        "depthwise_conv_grad",
        count,
        caps,
        {"g": source(0), "weight": source(2), "gx": result(0), "gpast": result(2), **keep},
        (count, length, width),
        constants={"TAPS": taps, "RESETS": resets},
    )
    room = () if whole else (4 * splits * width * taps, 4 * splits * width)
    return LoweredNode(launches=(*([moved] if count else []), weights, *joins), scratch=room)
