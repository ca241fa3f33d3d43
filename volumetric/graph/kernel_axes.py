"""Strides for kernels: the fewest axes that describe a broadcast, a permutation or a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from volumetric.base._typing import Shape
from volumetric.graph import strides as boxes
from volumetric.graph.strides import StridedAxis, broadcast_strides, strides_of

BINARY_AXES = 4
"""Separate axes over which `binary` may broadcast."""


def merge_axes(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Shape, tuple[Shape, ...]]:
    """Merge neighbouring axes that have a uniform stride in every tensor, and drop axes of size 1.

    Parameters
    ----------
    sizes : of the axes of a loop nest
    strides : the strides of each tensor, one for each axis, in elements; 0 on a repeated axis

    Returns
    -------
    sizes, strides : of the axes left, at least one
    """
    if prod(sizes) == 1:
        return (1,), tuple((1,) for _ in strides)
    axes = boxes.merge_strided_axes(
        [StridedAxis(size=n, steps=tuple(steps)) for n, *steps in zip(sizes, *strides, strict=True)]
    )
    return tuple(axis.size for axis in axes), tuple(zip(*(axis.steps for axis in axes), strict=True))


def broadcast_layout(out: Shape, *operands: Shape) -> tuple[Shape, tuple[Shape, ...]]:
    """Return the loop nest of an element-wise operation: sizes, and strides of the result and of each operand."""
    return merge_axes(out, strides_of(out), *(broadcast_strides(shape, out) for shape in operands))


def reduce_layout(shape: Shape, axes: Sequence[int]) -> tuple[tuple[int, bool], ...]:
    """Merge neighbouring axes that are all reduced or all not; return (size, whether reduced) in order."""
    flags = [(n, i in axes) for i, n in enumerate(shape) if n != 1] or [(1, False)]
    return tuple((prod(n for n, _ in run), reduced) for reduced, run in groupby(flags, key=lambda axis: axis[1]))


def is_contiguous_part(shape: Shape, starts: Sequence[int], stops: Sequence[int]) -> bool:
    """Return whether a slice is contiguous: all axes after the first one with more than one element are complete."""
    sizes = [stop - start for start, stop in zip(starts, stops, strict=True)]
    several = next((axis for axis, size in enumerate(sizes) if size != 1), len(sizes))
    return list(shape[several + 1 :]) == sizes[several + 1 :]


def first_element(shape: Shape, starts: Sequence[int]) -> int:
    """Return the row-major index of the first element of a slice."""
    at = 0
    for size, start in zip(shape, starts, strict=True):
        at = at * size + start
    return at


def lies_flat(joined: Shape, axis: int) -> bool:
    """Return whether the inputs of a `concat` along an axis are contiguous in the result."""
    return prod(joined[:axis]) == 1
