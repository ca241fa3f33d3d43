"""Reductions of formulas: values of element-wise operations are summed where they are computed, and never written."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.graph.formulas import AXES, formula_buffers, formula_words, written_prelude
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    result,
)
from volumetric.devices.gpu.kernels.graph.reduce import ReductionLoops, reduction_depth, split_reduction
from volumetric.graph.strides import StridedAxis


def reduce_formula(request: LoweringRequest) -> LoweredNode:
    """Sum, maximum or mean of a formula over some of its axes.

    Attributes are those of ``formula`` and the ``name`` of the reduction; ``reduced`` tells which axes it is over.
    """
    attrs, caps = request.attrs, request.caps
    sizes, reduced = attrs["sizes"], attrs["reduced"]
    axes = [StridedAxis(size=size, steps=(1 if axis == len(sizes) - 1 else 0,)) for axis, size in enumerate(sizes)]
    walk = ReductionLoops(
        outer=tuple(axis for axis, over in zip(axes, reduced, strict=True) if not over),
        reduced=tuple(axis for axis, over in zip(axes, reduced, strict=True) if over),
    )
    name = "sum" if attrs["name"] == "mean" else attrs["name"]
    missing = AXES - len(sizes)
    masks = {
        name: sum(1 << missing + axis for axis, over in enumerate(reduced) if over == wanted)
        for name, wanted in (("KEPT", False), ("REDUCED", True))
    }

    def first(target: BufferRef, outs: int, splits: int, workgroup: int, scale: float) -> KernelLaunch:
        depth = reduction_depth(walk.count, splits, workgroup // outs, caps)
        dims = [walk.outs, walk.count, ceil_div(walk.count, splits), splits, scale, 0, 0, 0]
        return launch(
            "reduce",
            ceil_div(walk.outs, outs) * splits,
            formula_buffers(request) | {"y": target},
            (*dims, *(1,) * missing, *sizes, *formula_words(attrs)),
            constants={"OUTS": outs, "COLUMNS": walk.columns, "DEPTH": depth, "RANK": len(sizes), **masks},
            preludes=(f"graph/reduce/{name}", "graph/reduce_from/formula", written_prelude(attrs)),
            workgroup=workgroup,
        )

    scale = 1.0 / max(walk.count, 1) if attrs["name"] == "mean" else 1.0
    launches, scratch = split_reduction(walk, name, caps, first, result(), scale=scale)
    return LoweredNode(launches=tuple(launches), scratch=tuple(scratch))
