"""Linear recurrences: one invocation per lane, or pair of lanes, of a sequence runs through all steps."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweredNode, LoweringRequest, launch, result, source

_GROUP = 64


def linear_scan(request: LoweringRequest) -> LoweredNode:
    """All steps, in as many launches as the driver's round limit needs."""
    keep, reverse = bool(request.attrs["keep"]), bool(request.attrs["reverse"])
    batch, length, width = request.inputs[0]
    buffers = {"u": source(0), "a": source(1), "s": result()}
    buffers |= {} if reverse else {"before": source(2)}
    buffers |= {"keep": source(len(request.inputs) - 1)} if keep else {}
    part = ceil_div(length, request.caps.launches_needed(1, length))
    group = min(_GROUP, request.caps.max_workgroup)
    return LoweredNode(
        launches=tuple(
            launch(
                "linear_scan",
                ceil_div(batch * width, group),
                buffers,
                (batch * width, length, width, first, min(first + part, length)),
                constants={"REVERSE": reverse, "KEEP": keep, "OF_STEP": len(request.inputs[1]) == 3},
                workgroup=group,
            )
            for first in range(0, length, max(part, 1))
        )
    )


def rotate_scan(request: LoweringRequest) -> LoweredNode:
    """All steps of all pairs, likewise."""
    keep, reverse = bool(request.attrs["keep"]), bool(request.attrs["reverse"])
    batch, length, wide = request.inputs[0]
    buffers = {"u": source(0), "g": source(1), "phi": source(2), "s": result()}
    buffers |= {} if reverse else {"before": source(3)}
    buffers |= {"keep": source(len(request.inputs) - 1)} if keep else {}
    part = ceil_div(length, request.caps.launches_needed(1, length))
    group = min(_GROUP, request.caps.max_workgroup)
    pairs = batch * wide // 2
    return LoweredNode(
        launches=tuple(
            launch(
                "rotate_scan",
                ceil_div(pairs, group),
                buffers,
                (pairs, length, wide // 2, first, min(first + part, length)),
                constants={"REVERSE": reverse, "KEEP": keep},
                workgroup=group,
            )
            for first in range(0, length, max(part, 1))
        )
    )
