"""Strides for kernels: the fewest axes that describe a broadcast, a permutation or a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from volumetric._typing import Shape


def strides_of(shape: Sequence[int]) -> Shape:
    """Elements from one place of each axis to the next, in a contiguous row-major tensor."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def merged(sizes: Sequence[int], *strides: Sequence[int]) -> tuple[Shape, tuple[Shape, ...]]:
    """Merge neighbouring axes over which every tensor walks evenly, and drop those of size 1.

    Parameters
    ----------
    sizes : of the axes of a loop nest
    strides : for each tensor its stride on each axis, in elements; 0 where it repeats

    Returns
    -------
    sizes, strides : of the axes left, at least one
    """
    axes: list[list[int]] = []  # each [size, stride of the first tensor, of the second, …]
    for size, *steps in zip(sizes, *strides, strict=True):
        if size == 1:
            continue
        if axes and all(before == step * size for before, step in zip(axes[-1][1:], steps, strict=True)):
            axes[-1] = [axes[-1][0] * size, *steps]
        else:
            axes.append([size, *steps])
    axes = axes or [[1, *(1 for _ in strides)]]
    left, *its = zip(*axes, strict=True)
    return left, tuple(its)


def broadcast_layout(out: Shape, *operands: Shape) -> tuple[Shape, tuple[Shape, ...]]:
    """Loop nest of an element-wise operation: sizes, and strides of the result and of each operand."""
    steps = [strides_of(out)]
    for shape in operands:
        wide = (1,) * (len(out) - len(shape)) + tuple(shape)
        own = strides_of(wide)
        steps.append(tuple(0 if n == 1 else s for n, s in zip(wide, own, strict=True)))
    return merged(out, *steps)


def reduce_layout(shape: Shape, axes: Sequence[int]) -> tuple[tuple[int, bool], ...]:
    """Neighbouring axes that are all kept, or all reduced, as one: (size, whether it is reduced), in order."""
    flags = [(n, i in axes) for i, n in enumerate(shape) if n != 1] or [(1, False)]
    return tuple((prod(n for n, _ in run), reduced) for reduced, run in groupby(flags, key=lambda axis: axis[1]))
