"""Operations that move elements: all are one strided copy; large transpositions use tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    elements,
    launch,
    one_each,
    result,
    single_launch,
    source,
    unsupported,
)
from volumetric.graph.strides import StridedAxis, broadcast_strides, merge_strided_axes, pad_to, strides_of

_AXES = 8
_WORD = 1 << 32
_TILE = 32
_JOINED = 6
"""Tensors joined by one launch: with the result they fit the storage buffers of any device."""
_WORTH_TILES = 8
"""Side lengths from which a tiled transposition beats an element-wise one."""


def copy_box(
    axes: Sequence[StridedAxis],
    caps: Caps,
    buffers: dict[str, BufferRef],
    *,
    x_start: int = 0,
    y_start: int = 0,
) -> KernelLaunch:
    """Return the copy of a box; each axis steps through x and y. Sizes must not be 0."""
    axes = merge_strided_axes(axes)
    if len(axes) > _AXES:
        raise unsupported("a strided copy", f"{len(axes)} axes")
    count = 1
    for axis in axes:
        count *= axis.size
    bounds = any(axis.inside is not None for axis in axes)
    dims = [count, x_start % _WORD, y_start % _WORD, 0]
    columns = (
        [axis.size for axis in axes],
        [axis.steps[0] for axis in axes],
        [axis.steps[1] for axis in axes],
        [axis.inside[0] if axis.inside else 0 for axis in axes],
        [axis.inside[1] if axis.inside else axis.size for axis in axes],
    )
    for column in columns:
        dims += pad_to(column, _AXES)
    constants = {"RANK": len(axes), "BOUNDS": bounds, "CONDITIONAL": "apply" in buffers}
    return elements("place", count, caps, buffers, dims, constants=constants)


def copy(count: int, caps: Caps, x: BufferRef, y: BufferRef) -> KernelLaunch:
    """Return a copy of `count` elements that is omitted if both are one buffer."""
    plain = copy_box([StridedAxis(size=count, steps=(1, 1))], caps, {"x": x, "y": y})
    return replace(plain, unless_same=(x, y))


def fill(count: int, caps: Caps, y: BufferRef, bits: int = 0) -> KernelLaunch:
    """Return a launch that fills `count` elements."""
    return elements("fill", count, caps, {"y": y}, (count, bits))


def transpose(batch: int, m: int, n: int, caps: Caps, x: BufferRef, y: BufferRef) -> KernelLaunch:
    """Return x [batch, m, n] → y [batch, n, m]."""
    across, down = ceil_div(n, _TILE), ceil_div(m, _TILE)
    total = batch * across * down
    buffers = {"x": x, "y": y}
    return launch("transpose", total, buffers, (m, n, across, down, total), workgroup=min(256, caps.max_workgroup))


def permute(request: LoweringRequest) -> LoweredNode:
    """Permute axes."""
    x_steps, y_steps = strides_of(request.inputs[0]), strides_of(request.outputs[0])
    turned = [x_steps[i] for i in request.attrs["perm"]]
    axes = merge_strided_axes(
        [StridedAxis(size=n, steps=(x, y)) for n, x, y in _zip_axes(request.outputs[0], turned, y_steps)]
    )
    matrices = _matrices(axes)
    if matrices is not None and min(matrices[1:]) >= _WORTH_TILES:
        return single_launch(transpose(*matrices, request.caps, source(0), result()))
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}))


def _matrices(axes: Sequence[StridedAxis]) -> tuple[int, int, int] | None:
    """Batch, rows and columns of x if the copy transposes consecutive matrices, else None."""
    if len(axes) not in (2, 3):
        return None
    *lead, n, m = axes
    if n.steps[0] != 1 or m.steps[0] != n.size:
        return None
    if lead and lead[0].steps != (m.size * n.size,) * 2:
        return None
    return (lead[0].size if lead else 1), m.size, n.size


def turn_taps(request: LoweringRequest) -> LoweredNode:
    """X [G, outs, ins · taps] → y [G, ins, outs · taps] with the taps of each filter in reverse."""
    groups, outs, deep = request.inputs[0]
    taps = request.attrs["count"]
    ins = deep // taps
    axes = [
        StridedAxis(size=groups, steps=(outs * deep, outs * deep)),
        StridedAxis(size=outs, steps=(deep, taps)),
        StridedAxis(size=ins, steps=(taps, outs * taps)),
        StridedAxis(size=taps, steps=(_WORD - 1, 1)),
    ]
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}, x_start=taps - 1))


def slice_(request: LoweringRequest) -> LoweredNode:
    """A box of a tensor."""
    x_steps, y_steps = strides_of(request.inputs[0]), strides_of(request.outputs[0])
    axes = [StridedAxis(size=n, steps=(x, y)) for n, x, y in _zip_axes(request.outputs[0], x_steps, y_steps)]
    start = sum(at * step for at, step in zip(request.attrs["starts"], x_steps, strict=True))
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}, x_start=start))


def flip(request: LoweringRequest) -> LoweredNode:
    """Reverse one axis: a copy that starts at its end with a negative stride."""
    shape, axis = request.inputs[0], request.attrs["axis"]
    own = strides_of(shape)
    axes = [
        StridedAxis(size=n, steps=(_WORD - s if i == axis else s, s))
        for i, (n, s) in enumerate(zip(shape, own, strict=True))
    ]
    start = own[axis] * (shape[axis] - 1)
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}, x_start=start))


def pad(request: LoweringRequest) -> LoweredNode:
    """A tensor with zeros around it."""
    if request.size() == 0:
        return single_launch(fill(request.out_size, request.caps, result()))
    shape, before = request.inputs[0], request.attrs["before"]
    x_steps, y_steps = strides_of(shape), strides_of(request.outputs[0])
    axes = [
        StridedAxis(size=wide, steps=(x, y), inside=None if wide == n else (b, b + n))
        for n, wide, b, x, y in zip(shape, request.outputs[0], before, x_steps, y_steps, strict=True)
    ]
    start = -sum(b * step for b, step in zip(before, x_steps, strict=True))
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}, x_start=start))


def concat(request: LoweringRequest) -> LoweredNode:
    """Concatenate tensors, or parts of them, along an axis: as rows side by side, six tensors per launch."""
    axis = request.attrs["axis"]
    rows = prod(request.outputs[0][:axis])
    width = prod(request.outputs[0][axis:])
    parts = request.attrs.get("parts") or [(0, prod(shape[axis:])) for shape in request.inputs]
    there = [(i, *part) for i, part in enumerate(parts) if rows * part[1]]
    launches, start = [], 0
    for first in range(0, len(there), _JOINED):
        some = there[first : first + _JOINED]
        sources = [(source(i), begin, size) for i, begin, size in some]
        launches.append(join(sources, result(), request.caps, rows=rows, width=width, start=start))
        start += sum(size for _, _, size in some)
    return LoweredNode(launches=tuple(launches))


def join(
    parts: Sequence[tuple[BufferRef, int, int]],
    y: BufferRef,
    caps: Caps,
    *,
    rows: int = 1,
    width: int = 0,
    start: int = 0,
) -> KernelLaunch:
    """Return the copy of up to six parts of tensors side by side, into columns of y from `start` on.

    Parameters
    ----------
    parts : tensor, its first element, and columns
    width : columns of y; 0: those of the parts
    """
    sizes = [size for _, _, size in parts]
    columns = sum(sizes)
    buffers = {f"x_{n}": x for n, (x, _, _) in enumerate(parts)} | {"y": y}
    edges, starts = pad_to([0, *accumulate(sizes)], 8, columns), pad_to([begin for _, begin, _ in parts], 8)
    return one_each(
        "concat", rows * columns, caps, buffers, (rows * columns, columns, width or columns, start, *edges, *starts)
    )


def broadcast(request: LoweringRequest) -> LoweredNode:
    """A tensor repeated along axes of size 1."""
    shape = request.outputs[0]
    x_steps = broadcast_strides(request.inputs[0], shape)
    axes = [StridedAxis(size=n, steps=(x, y)) for n, x, y in _zip_axes(shape, x_steps, strides_of(shape))]
    return single_launch(copy_box(axes, request.caps, {"x": source(0), "y": result()}))


def assign(request: LoweringRequest) -> LoweredNode:
    """A copy into a persistent buffer, on a condition if there is a second input."""
    buffers = {"x": source(0), "y": result()}
    if len(request.inputs) > 1:
        buffers["apply"] = source(1)
    axes = [StridedAxis(size=request.out_size, steps=(1, 1))]
    return single_launch(replace(copy_box(axes, request.caps, buffers), unless_same=(source(0), result())))


def gather_rows(request: LoweringRequest) -> LoweredNode:
    """Rows of a table by id."""
    count, dims = request.out_size, (request.out_size, request.outputs[0][1], max(request.inputs[0][0], 1) - 1)
    buffers = {"rows": source(0), "ids": source(1), "y": result()}
    return single_launch(elements("gather_rows", count, request.caps, buffers, dims))


def weigh_rows(request: LoweringRequest) -> LoweredNode:
    """Weighted sums of rows of two tables."""
    (count, terms), (split, width) = request.inputs[2], request.inputs[0]
    names = {name: source(number) for number, name in enumerate(("near", "far", "ids", "weights"))}
    dims = (count * width, width, terms, split, max(split + request.inputs[1][0], 1) - 1)
    return single_launch(one_each("weigh_rows", count * width, request.caps, {**names, "y": result()}, dims))


def sum_listed(request: LoweringRequest) -> LoweredNode:
    """Sums of listed rows."""
    count, width = request.out_size, request.outputs[0][1]
    buffers = {"g": source(0), "list": source(1), "starts": source(2), "y": result()}
    dims = (count, width, request.attrs["longest"], request.inputs[1][0], max(request.inputs[0][0], 1) - 1)
    return single_launch(one_each("sum_listed", count, request.caps, buffers, dims))


def rope(request: LoweringRequest) -> LoweredNode:
    """Rotary embedding."""
    _, length, heads, width = request.inputs[0]
    buffers = {"x": source(0), "cosines": source(1), "sines": source(2), "y": result()}
    constants = {"HALF": request.inputs[1][-1], "BACK": bool(request.attrs["back"])}
    dims = (request.out_size, length, heads, width)
    return single_launch(one_each("rope", request.out_size, request.caps, buffers, dims, constants=constants))


def _zip_axes(sizes: Sequence[int], x_steps: Sequence[int], y_steps: Sequence[int]) -> list[tuple[int, int, int]]:
    return list(zip(sizes, x_steps, y_steps, strict=True))
