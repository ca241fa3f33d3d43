"""Sliding windows over the spatial axes of images, and their transpose: the two halves of every convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from volumetric.base._typing import Array, Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows that slide over ``[N, C, *sizes]``; every field has one number for each spatial axis.

    Attributes
    ----------
    kernel : taps of a window
    stride : steps from one window to the next
    dilation : steps from one tap to the next
    before, after : zeros added before and after the image
    """

    kernel: Shape
    stride: Shape
    dilation: Shape
    before: Shape
    after: Shape

    @property
    def spans(self) -> Shape:
        """Elements from the first to the last tap of a window, inclusive."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def padded_sizes(self, sizes: Shape) -> Shape:
        """Return the sizes of an image with its padding."""
        return tuple(b + s + a for b, s, a in zip(self.before, sizes, self.after, strict=True))

    def counts(self, sizes: Shape) -> Shape:
        """Return how many windows fit along each axis, ``⌊(size - span) / stride⌋ + 1``; below 1 if none fits."""
        axes = zip(self.padded_sizes(sizes), self.spans, self.stride, strict=True)
        return tuple((size - span) // step + 1 for size, span, step in axes)

    def attributes(self, counts: Shape) -> dict[str, Shape]:
        """Return the attributes of operations for the first `counts` of these windows."""
        names = ("kernel", "stride", "dilation", "before")
        return {**{name: getattr(self, name) for name in names}, "counts": counts}

    def unfold(self, x: Array, counts: Shape, groups: int, *, outside: float = 0.0) -> Array:
        """Copy the first `counts` windows out of an image, with the value `outside` beyond its borders.

        ``[N, C, *sizes] -> [N, groups, C / groups · ∏kernel, ∏counts]``.
        """
        axes = len(self.kernel)
        zeros = [(0, 0), (0, 0), *zip(self.before, self.after, strict=True)]
        image = np.pad(x, zeros, constant_values=outside) if any(self.before + self.after) else x
        views = sliding_window_view(image, self.spans, axis=tuple(range(2, 2 + axes)))
        starts = [slice(0, s * (n - 1) + 1, s) for s, n in zip(self.stride, counts, strict=True)]
        taps = [slice(None, None, d) for d in self.dilation]
        views = views[(..., *starts, *taps)]  # [N, C, *counts, *kernel]
        views = views.transpose(0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
        samples, channels = x.shape[:2]
        return views.reshape(samples, groups, channels // groups * math.prod(self.kernel), math.prod(counts))

    def fold(self, columns: Array, counts: Shape, sizes: Shape) -> Array:
        """Sum windows into an image, the transpose of `unfold`: each at the place from which `unfold` copies it."""
        samples, groups, depth, _ = columns.shape
        channels = groups * depth // math.prod(self.kernel)
        image = np.zeros((samples, channels, *self.padded_sizes(sizes)), columns.dtype)
        taps = columns.reshape(samples, channels, *self.kernel, *counts)
        for tap in np.ndindex(*self.kernel):  # a slice of the whole image at a time, for each tap of the kernel
            axes = zip(tap, self.dilation, self.stride, counts, strict=True)
            places = tuple(slice(t * d, t * d + s * (n - 1) + 1, s) for t, d, s, n in axes)
            image[(..., *places)] += taps[(slice(None), slice(None), *tap)]
        inside = tuple(slice(b, b + s) for b, s in zip(self.before, sizes, strict=True))
        return image[(..., *inside)]

    def largest(self, x: Array, counts: Shape) -> tuple[Array, Array]:
        """Return the largest element of each window, and its tap: ``[N, C, *counts]`` both.

        The first of equal elements wins; NaN is larger than all numbers, and padding is smaller.
        """
        columns = self.unfold(x, counts, x.shape[1], outside=-np.inf)
        tap = columns.argmax(axis=2)
        y = np.take_along_axis(columns, tap[:, :, None], axis=2)
        shape = (*x.shape[:2], *counts)
        return y.reshape(shape), tap.reshape(shape)

    def at_taps(self, g: Array, tap: Array, sizes: Shape) -> Array:
        """Return the gradient of the input of `largest`: each element of `g` goes to its window's `tap`."""
        samples, channels, *counts = g.shape
        columns = np.zeros((samples, channels, math.prod(self.kernel), math.prod(counts)), g.dtype)
        flat = (samples, channels, 1, math.prod(counts))
        np.put_along_axis(columns, tap.reshape(flat), g.reshape(flat), axis=2)
        return self.fold(columns, tuple(counts), sizes)

    def sums(self, x: Array, counts: Shape) -> Array:
        """Return the sum of each window, ``[N, C, *counts]``."""
        return self.unfold(x, counts, x.shape[1]).sum(axis=2).reshape(*x.shape[:2], *counts)

    def spread_sums(self, g: Array, sizes: Shape) -> Array:
        """Return the transpose of `sums`: each element is the sum of the windows that see it."""
        samples, channels, *counts = g.shape
        flat = g.reshape(samples, channels, 1, math.prod(counts))
        columns = np.broadcast_to(flat, (samples, channels, math.prod(self.kernel), math.prod(counts)))
        return self.fold(columns, tuple(counts), sizes)
