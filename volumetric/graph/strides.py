"""Strided boxes of elements of several tensors, reduced to as few axes as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volumetric.base._typing import Shape


def strides_of(shape: Shape) -> Shape:
    """Return row-major strides in elements."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return tuple(strides)


def broadcast_strides(shape: Shape, target: Shape) -> Shape:
    """Return the strides that read `shape` broadcast to `target`: 0 along repeated axes."""
    wide = (1,) * (len(target) - len(shape)) + shape
    return tuple(0 if n == 1 and m != 1 else step for n, m, step in zip(wide, target, strides_of(wide), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedAxis:
    """One axis of a box: its size, its stride in each tensor, and the range that exists if the rest is padding."""

    size: int
    steps: tuple[int, ...]
    inside: tuple[int, int] | None = None


def merge_strided_axes(axes: Sequence[StridedAxis]) -> tuple[StridedAxis, ...]:
    """Drop axes of size 1 and merge neighbours that are contiguous in memory; return at least one axis."""
    runs: list[StridedAxis] = []
    for axis in axes:
        if axis.size == 1 and axis.inside is None:
            continue
        last = runs[-1] if runs else None
        plain = last is not None and last.inside is None and axis.inside is None
        if last is not None and plain and last.steps == tuple(s * axis.size for s in axis.steps):
            runs[-1] = StridedAxis(size=last.size * axis.size, steps=axis.steps)
        else:
            runs.append(axis)
    return tuple(runs) or (StridedAxis(size=1, steps=(0,) * len(axes[0].steps) if axes else (0,)),)


def pad_to(values: Sequence[int], length: int, fill: int = 0) -> tuple[int, ...]:
    """Return `values` padded to `length`."""
    return (*values, *[fill] * (length - len(values)))
