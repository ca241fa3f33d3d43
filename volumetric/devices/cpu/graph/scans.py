"""Steps of linear recurrences."""

from __future__ import annotations

from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.scans import LINEAR_SCAN_ARGUMENTS, ROTATE_SCAN_ARGUMENTS
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.ops import Node


@rule("linear_scan")
def linear_scan(builder: StepBuilder, node: Node) -> None:
    """All steps of all sequences."""
    u, a, *rest = node.inputs
    keep, reverse = node.attrs["keep"], node.attrs["reverse"]
    batch, length, width = builder.shape(u)
    each = builder.shape(a) == builder.shape(u)
    start, keep_factors = None if reverse else rest[0], rest[-1] if keep else None
    builder.add(
        "linear_scan",
        LINEAR_SCAN_ARGUMENTS,
        int(reverse),
        int(keep),
        int(each),
        reads={"u": u, "a": a, "start": start, "keep": keep_factors},
        writes={"s": node.outputs[0]},
        work=move_nanoseconds(4 * batch * length * width * (2 + each)),
        batch=batch,
        length=length,
        width=width,
    )


@rule("rotate_scan")
def rotate_scan(builder: StepBuilder, node: Node) -> None:
    """All steps of all sequences."""
    u, g, phi, *rest = node.inputs
    keep, reverse = node.attrs["keep"], node.attrs["reverse"]
    batch, length, wide = builder.shape(u)
    start, keep_factors = None if reverse else rest[0], rest[-1] if keep else None
    builder.add(
        "rotate_scan",
        ROTATE_SCAN_ARGUMENTS,
        int(reverse),
        int(keep),
        reads={"u": u, "g": g, "phi": phi, "start": start, "keep": keep_factors},
        writes={"s": node.outputs[0]},
        work=move_nanoseconds(8 * batch * length * wide),
        batch=batch,
        length=length,
        width=wide // 2,
    )
