"""Operators that move, cut, join or repeat elements."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.fold_known import (
    shape_of,
    slice_bounds,
    slices_of,
    split_sizes,
    squeezed,
    target_shape,
    unsqueezed,
)
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, known_value
from volumetric.loaders.onnx_import.operators.operator_table import operator


@operator("Shape")
def _shape(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return known_value(shape_of(call, x.shape))


@operator("Size")
def _size(call: NodeCall, x: OnnxValue) -> OnnxValue:
    return known_value(np.array(x.size, np.int64))


@operator("Reshape", static=(1,))
def _reshape(call: NodeCall, x: OnnxValue, shape: OnnxValue | None = None) -> OnnxValue:
    wanted = call.numbers("shape", ()) if shape is None else call.array(shape, "the shape")
    return call.reshaped(x, target_shape(call, x.shape, wanted, x.size))


@operator("Flatten")
def _flatten(call: NodeCall, x: OnnxValue) -> OnnxValue:
    axis = call.attribute("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return call.reshaped(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@operator("Unsqueeze", static=(1,))
def _unsqueeze(call: NodeCall, x: OnnxValue, axes: OnnxValue | None = None) -> OnnxValue:
    chosen = call.numbers("axes") if axes is None else call.ints(axes, "axes")
    return call.reshaped(x, unsqueezed(call, x.shape, chosen))


@operator("Squeeze", static=(1,))
def _squeeze(call: NodeCall, x: OnnxValue, axes: OnnxValue | None = None) -> OnnxValue:
    chosen = call.numbers("axes") if axes is None else call.ints(axes, "axes")
    return call.reshaped(x, squeezed(call, x.shape, chosen))


@operator("Transpose")
def _transpose(call: NodeCall, x: OnnxValue) -> OnnxValue:
    order = call.numbers("perm") or tuple(reversed(range(len(x.shape))))
    if len(x.shape) < 2:
        return x
    return call.result(call.work.permute(call.tensor(x), order), x.dtype)


@operator("Concat")
def _concat(call: NodeCall, *parts: OnnxValue) -> OnnxValue:
    axis = call.axis(call.attribute("axis", 1), len(parts[0].shape))
    full = [part for part in parts if part.size] or list(parts[:1])
    tensor = call.work.concat([call.tensor(part) for part in full], axis)
    return call.result(tensor, parts[0].dtype)


@operator("Split", static=(1,))
def _split(call: NodeCall, x: OnnxValue, sizes: OnnxValue | None = None) -> list[OnnxValue]:
    axis = call.axis(call.attribute("axis", 0), len(x.shape))
    parts = split_sizes(call, x.shape[axis], None if sizes is None else call.ints(sizes, "the sizes of parts"))
    return [call.result(part, x.dtype) for part in call.work.split(call.tensor(x), parts, axis)]


@operator("Slice", static=(1, 2, 3, 4))
def _slice(
    call: NodeCall,
    x: OnnxValue,
    starts: OnnxValue | None = None,
    ends: OnnxValue | None = None,
    axes: OnnxValue | None = None,
    steps: OnnxValue | None = None,
) -> OnnxValue:
    bounds = [None if v is None else call.array(v, "the bounds") for v in (starts, ends, axes, steps)]
    y, work, ids = call.tensor(x), call.work, x.ids
    for axis, start, stop, step in slices_of(call, x.shape, *bounds):
        size = work.shape(y)[axis]
        first, last, step = slice_bounds(size, start, stop, step)
        count = len(range(first, last, step))
        if step == 1:
            y = work.part(y, axis, min(first, size), min(first, size) + count)
            ids = None if ids is None else work.part(ids, axis, min(first, size), min(first, size) + count)
        else:
            y, ids = _strided(call, y, axis, np.arange(first, last, step), step), None
    return call.result(y, x.dtype, work.shape(y) if x.shape else (), ids)


def _strided(call: NodeCall, x: int, axis: int, indices: Array, step: int) -> int:
    """Emit elements at equal distances: a view as columns if the distance is positive."""
    work, shape = call.work, call.work.shape(x)
    if step < 2 or len(indices) < 2:
        return call.take(x, axis, indices)
    first, whole = int(indices[0]), len(indices) * step
    short = max(first + whole - shape[axis], 0)
    if short:
        x = work.pad(x, (0,) * len(shape), tuple(short if i == axis else 0 for i in range(len(shape))))
    x = work.part(x, axis, first, first + whole)
    columns = work.reshape(x, (*shape[:axis], len(indices), step, *shape[axis + 1 :]))
    column = work.part(columns, axis + 1, 0, 1)
    return work.reshape(column, (*shape[:axis], len(indices), *shape[axis + 1 :]))


@operator("Expand", static=(1,))
def _expand(call: NodeCall, x: OnnxValue, shape: OnnxValue) -> OnnxValue:
    whole = np.broadcast_shapes(x.shape, call.ints(shape, "the shape"))
    return call.result(call.spread(call.tensor(x), whole or (1,)), x.dtype, whole)


@operator("Tile", static=(1,))
def _tile(call: NodeCall, x: OnnxValue, repeats: OnnxValue) -> OnnxValue:
    counts = call.ints(repeats, "the repeats")
    if len(counts) != len(x.shape):
        raise ShapeError(f"{call.label}: {len(counts)} repeats for {len(x.shape)} axes")
    y, work = call.tensor(x), call.work
    for axis, count in enumerate(counts):
        shape = work.shape(y)
        if count != 1:
            view = work.reshape(y, (prod(shape[:axis]), 1, prod(shape[axis:])))
            y = work.broadcast(view, (prod(shape[:axis]), count, prod(shape[axis:])))
            y = work.reshape(y, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))
    return call.result(y, x.dtype, work.shape(y) if x.shape else ())


@operator("Pad", static=(1, 2, 3))
def _pad(
    call: NodeCall,
    x: OnnxValue,
    pads: OnnxValue | None = None,
    value: OnnxValue | None = None,
    axes: OnnxValue | None = None,
) -> OnnxValue:
    """Emit margins of a value, of what lies inside, or of its mirror; negative ones cut off."""
    rank = len(x.shape)
    widths = (call.numbers("pads") or ()) if pads is None else call.ints(pads, "the padding")
    chosen = range(rank) if axes is None else [call.axis(a, rank) for a in call.ints(axes, "axes")]
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(chosen):
        before[axis], after[axis] = widths[i], widths[i + len(widths) // 2]
    fill = float(call.attribute("value", 0.0)) if value is None else float(call.number(value, "the value"))
    mode = call.attribute("mode", "constant")
    y = call.tensor(x)
    if mode == "constant":
        return call.result(padded(call, y, before, after, fill), x.dtype)
    for axis in range(rank):
        if before[axis] or after[axis]:
            size = call.work.shape(y)[axis]
            cut = max(-before[axis], 0), size - max(-after[axis], 0)
            inside = np.arange(*cut)
            indices = np.pad(inside, (max(before[axis], 0), max(after[axis], 0)), mode)
            y = call.take(y, axis, indices)
    return call.result(y, x.dtype)


def padded(call: NodeCall, x: int, before: list[int], after: list[int], fill: float) -> int:
    """Emit a tensor with margins of `fill`; a negative margin is cut off."""
    work = call.work
    for axis, size in enumerate(work.shape(x)):
        start, stop = max(-before[axis], 0), size - max(-after[axis], 0)
        x = work.part(x, axis, start, max(stop, start))
    wide, end = [max(n, 0) for n in before], [max(n, 0) for n in after]
    if not any(wide) and not any(end):
        return x
    if fill == 0:
        return work.pad(x, wide, end)
    if np.isfinite(fill):
        return work.affine(work.pad(work.affine(x, 1.0, -fill), wide, end), 1.0, fill)
    inside = np.pad(np.ones(work.shape(x)), list(zip(wide, end, strict=True)))
    return call.select(work.constant(inside), work.pad(x, wide, end), work.scalar(fill))


@operator("DepthToSpace")
def _depth_to_space(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, block = call.work, call.attribute("blocksize")
    n, c, h, w = x.shape
    deep = c // block**2
    if call.attribute("mode", "DCR") == "DCR":
        parts = work.permute(work.reshape(call.tensor(x), (n, block, block, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = work.permute(work.reshape(call.tensor(x), (n, deep, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return call.result(parts, x.dtype, (n, deep, h * block, w * block))


@operator("SpaceToDepth")
def _space_to_depth(call: NodeCall, x: OnnxValue) -> OnnxValue:
    work, block = call.work, call.attribute("blocksize")
    n, c, h, w = x.shape
    parts = work.reshape(call.tensor(x), (n, c, h // block, block, w // block, block))
    depth_first = call.attribute("mode", "DCR") == "DCR"
    parts = work.permute(parts, (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4))
    return call.result(parts, x.dtype, (n, c * block**2, h // block, w // block))


@operator("Trilu", static=(1,))
def _trilu(call: NodeCall, x: OnnxValue, k: OnnxValue | None = None) -> OnnxValue:
    offset = 0 if k is None else int(call.number(k, "k"))
    mask = (np.triu if call.attribute("upper", 1) else np.tril)(np.ones(x.shape[-2:]), offset)
    return call.result(call.pair("mul_nonzero", call.tensor(x), call.work.constant(mask)), x.dtype, x.shape)


@operator("ReverseSequence", static=(1,))
def _reverse_sequence(call: NodeCall, x: OnnxValue, lengths: OnnxValue) -> OnnxValue:
    counts = call.ints(lengths, "the lengths")
    time, batch = call.attribute("time_axis", 0), call.attribute("batch_axis", 1)
    index = np.arange(x.size).reshape(x.shape)
    index = np.moveaxis(index, (batch, time), (0, 1)).copy()
    for i, count in enumerate(counts):
        index[i, :count] = index[i, :count][::-1]
    index = np.moveaxis(index, (0, 1), (batch, time))
    flat = call.take(call.work.reshape(call.tensor(x), (x.size,)), 0, index)
    return call.result(flat, x.dtype, x.shape)
