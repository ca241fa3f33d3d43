"""Reductions over any axes, in one launch or, if that would leave the device idle, in two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import TypeAlias

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    result,
    scratch,
    source,
    unsupported,
)
from volumetric.graph.strides import StridedAxis, pad_to, strides_of

_AXES = 4
_COLUMNS = 32
"""Neighbouring outputs of a workgroup if they are contiguous in memory: a cache line of them."""
_WORTH = 16
"""Elements per invocation before the work is split further."""
_SPLITS = 512
_DEPTH = 8
"""Maximum elements that an invocation reads at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionLoops:
    """A reduction as two loop nests over x: the kept elements, and for each the reduced ones."""

    outer: tuple[StridedAxis, ...]
    reduced: tuple[StridedAxis, ...]

    @property
    def outs(self) -> int:
        """Results."""
        return prod(axis.size for axis in self.outer)

    @property
    def count(self) -> int:
        """Elements per result."""
        return prod(axis.size for axis in self.reduced)

    @property
    def columns(self) -> bool:
        """Whether neighbouring results, rather than the elements of one, are contiguous in memory."""
        return any(axis.steps[0] == 1 and axis.size > 1 for axis in self.outer)


def reduction_loops_of(shape: Shape, axes: tuple[int, ...]) -> ReductionLoops:
    """Merge neighbouring axes that are all kept or all reduced."""
    flags = [(n, i in axes, step) for i, (n, step) in enumerate(zip(shape, strides_of(shape), strict=True)) if n != 1]
    sides: dict[bool, list[StridedAxis]] = {False: [], True: []}
    for reduced, run in groupby(flags, key=lambda axis: axis[1]):
        members = list(run)
        sides[reduced].append(StridedAxis(size=prod(n for n, _, _ in members), steps=(members[-1][2],)))
    return ReductionLoops(outer=tuple(sides[False]), reduced=tuple(sides[True]))


def column_split(width: int, rows: int, caps: Caps) -> tuple[int, int, int]:
    """Columns of a workgroup, its invocations, and the number of parts the rows are split into."""
    workgroup = min(256, caps.max_workgroup)
    columns = min(_COLUMNS, power_of_two(width))
    return columns, workgroup, _splits(ceil_div(width, columns) * workgroup, rows, workgroup // columns, caps)


def _splits(invocations: int, count: int, team: int, caps: Caps) -> int:
    splits = caps.invocations // max(invocations, 1)
    return max(min(splits, count // (team * _WORTH), _SPLITS), caps.launches_needed(1, ceil_div(count, team)))


def join(
    walk: ReductionLoops, name: str, caps: Caps, x: BufferRef, y: BufferRef, *, scale: float = 1.0, spare: int = 0
) -> tuple[list[KernelLaunch], list[int]]:
    """Return the reduction of x into y: launches and bytes of scratch buffers, numbered from `spare`."""
    if max(len(walk.outer), len(walk.reduced)) > _AXES:
        raise unsupported("reduce", "so many alternating axes")

    def first(target: BufferRef, outs: int, splits: int, workgroup: int, part_scale: float) -> KernelLaunch:
        return _launch(walk, name, caps, outs, splits, workgroup, part_scale, x, target)

    return split_reduction(walk, name, caps, first, y, scale=scale, spare=spare)


FirstLaunch: TypeAlias = Callable[[BufferRef, int, int, int, float], KernelLaunch]
"""Returns the launch that reduces the elements, from its result, outputs of a workgroup, splits, invocations, scale."""


def split_reduction(
    walk: ReductionLoops,
    name: str,
    caps: Caps,
    first: FirstLaunch,
    y: BufferRef,
    *,
    scale: float = 1.0,
    spare: int = 0,
) -> tuple[list[KernelLaunch], list[int]]:
    """Divide a reduction among workgroups; return its launches, the first of which `first` makes, as `join` does."""
    workgroup = min(256, caps.max_workgroup)
    if walk.columns:
        outs = min(_COLUMNS, power_of_two(walk.outer[-1].size))
        team = workgroup // outs
    else:
        team = max(2, min(power_of_two(walk.count), 32 if walk.count < 1024 else workgroup))
        outs = workgroup // team
    splits = _splits(ceil_div(walk.outs, outs) * workgroup, walk.count, team, caps)
    if splits == 1:
        return [first(y, outs, 1, workgroup, scale)], []
    again = ReductionLoops(
        outer=(StridedAxis(size=walk.outs, steps=(1,)),) if walk.outs > 1 else (),
        reduced=(StridedAxis(size=splits, steps=(walk.outs,)),),
    )
    onward_outs = min(_COLUMNS, power_of_two(walk.outs)) if walk.outs > 1 else 1
    second = _launch(again, name, caps, onward_outs, 1, workgroup, scale, scratch(spare), y)
    return [first(scratch(spare), outs, splits, workgroup, 1.0), second], [4 * splits * walk.outs]


def reduction_depth(count: int, splits: int, team: int, caps: Caps) -> int:
    """Elements that each invocation of a team reads at once, of the `count` of a result."""
    if caps.unroll < _DEPTH:
        return 4  # one kernel for all sizes: software adapters take long to compile
    return power_of_two(max(min(ceil_div(ceil_div(count, splits), team), _DEPTH), 1))


def _launch(
    walk: ReductionLoops,
    name: str,
    caps: Caps,
    outs: int,
    splits: int,
    workgroup: int,
    scale: float,
    x: BufferRef,
    y: BufferRef,
) -> KernelLaunch:
    dims: list[int | float] = [walk.outs, walk.count, ceil_div(walk.count, splits), splits, scale, 0, 0, 0]
    for axes in (walk.outer, walk.reduced):
        dims += pad_to([axis.size for axis in axes], _AXES, 1)
        dims += pad_to([axis.steps[0] for axis in axes], _AXES)
    constants = {
        "OUTS": outs,
        "COLUMNS": walk.columns,
        "DEPTH": reduction_depth(walk.count, splits, workgroup // outs, caps),
        "KEPT": max(len(walk.outer), 1),
        "REDUCED": max(len(walk.reduced), 1),
    }
    groups = ceil_div(walk.outs, outs) * splits
    preludes = (f"graph/reduce/{name}", "graph/reduce_from/tensor")
    return launch("reduce", groups, {"x": x, "y": y}, dims, constants=constants, preludes=preludes, workgroup=workgroup)


def sum_rows(rows: int, width: int, caps: Caps, x: BufferRef, y: BufferRef) -> KernelLaunch:
    """Return the sum of few rows, one launch."""
    workgroup = min(256, caps.max_workgroup)
    walk = reduction_loops_of((rows, width), (0,))
    outs = min(_COLUMNS, power_of_two(width)) if walk.columns else 1
    return _launch(walk, "sum", caps, outs, 1, workgroup, 1.0, x, y)


def reduce(request: LoweringRequest) -> LoweredNode:
    """Sum, maximum or mean over axes."""
    name = request.attrs["name"]
    walk = reduction_loops_of(request.inputs[0], tuple(request.attrs["axes"]))
    scale = 1.0 / max(walk.count, 1) if name == "mean" else 1.0
    launches, buffers = join(walk, "sum" if name == "mean" else name, request.caps, source(0), result(), scale=scale)
    return LoweredNode(launches=tuple(launches), scratch=tuple(buffers))
