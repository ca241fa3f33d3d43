"""Pooling over one, two or three spatial axes, with torch's fields and semantics."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.image_windows import Windows
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import layer, layer_base, show_shape
from volumetric.layers.windowed import Windowed


@layer_base
class Pool(Windowed):
    """What the windows of pooling layers have in common.

    Attributes
    ----------
    kernel_size : elements of a window, a number for all spatial axes or one for each
    stride : steps from one window to the next; None: `kernel_size`
    padding : elements added on both sides of each spatial axis, at most half of `kernel_size`
    ceil_mode : whether a last window that extends beyond the image counts, if it starts in it or in the padding before
    """

    kernel_size: int | Shape = positional()
    stride: int | Shape | None = positional(default=None)
    padding: int | Shape = positional(default=0)
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        windows = self._windows()
        if any(2 * pad > taps for pad, taps in zip(windows.before, windows.kernel, strict=True)):
            raise SpecError(f"{self.kind}: padding {self.padding} is more than half of kernel_size {self.kernel_size}")

    def dilations(self) -> Shape:
        """Steps from one element of a window to the next, for each axis."""
        return (1,) * self.spatial

    def _windows(self) -> Windows:
        kernel, padding = self.along("kernel_size", 1), self.along("padding", 0)
        stride = kernel if self.stride is None else self.along("stride", 1)
        return Windows(kernel=kernel, stride=stride, dilation=self.dilations(), before=padding, after=padding)

    def windows(self, shape: Shape) -> tuple[Windows, Shape]:
        """Return the windows over an input of `shape`, and their number along each axis.

        Raises
        ------
        ShapeError
            The input is not an image with these axes, or no window fits it.
        """
        if len(shape) != 2 + self.spatial or shape[1] < 1:
            raise ShapeError(f"{self.kind} expects [N, C, {self.axes}], got shape {show_shape(shape)}")
        windows, sizes = self._windows(), shape[2:]
        counts = windows.counts(sizes)
        if self.ceil_mode:
            axes = zip(
                counts, sizes, windows.padded_sizes(sizes), windows.spans, windows.stride, windows.before, strict=True
            )
            counts = tuple(
                n + ((wide - span) % step > 0 and n * step < size + before)
                for n, size, wide, span, step, before in axes
            )
        if min(counts) < 1:
            spans, padded = show_shape(windows.spans), show_shape(windows.padded_sizes(sizes))
            raise ShapeError(f"{self.kind}: a window that spans {spans} does not fit the padded sizes {padded}")
        axes = zip(counts, sizes, windows.spans, windows.stride, windows.before, strict=True)
        after = tuple(max(before, step * (n - 1) + span - before - size) for n, size, span, step, before in axes)
        fitted = Windows(
            kernel=windows.kernel, stride=windows.stride, dilation=windows.dilation, before=windows.before, after=after
        )
        return fitted, counts

    def output_shape(self, *inputs: Shape) -> Shape:
        return (*inputs[0][:2], *self.windows(inputs[0])[1])


@layer_base
class MaxPool(Pool):
    """Largest element of each window.

    ::

        y[n, c, o] = max_k x[n, c, stride·o + dilation·k − padding]

    Each channel is pooled separately. There are ``⌊(size + 2·padding − span) / stride⌋ + 1`` windows along an axis,
    where a window spans ``dilation·(kernel_size − 1) + 1`` elements. `ceil_mode` rounds the quotient up. The padding is
    −∞, so it is never the largest element. NaN in a window makes the result NaN. The gradient of a window goes to its
    largest element, and to the first of equal ones. All as in PyTorch.

    Attributes
    ----------
    dilation : steps from one element of a window to the next
    """

    dilation: int | Shape = 1

    def dilations(self) -> Shape:
        return self.along("dilation", 1)

    def emit(self, scope: Scope, x: int) -> int:
        windows, counts = self.windows(scope.work.shape(x))
        return scope.work.emit("pool_max", (x,), **windows.attributes(counts))[0]


@layer("max_pool1d")
class MaxPool1d(MaxPool):
    """Largest element of each window of sequences ``[N, C, L]``; fields and formula as in `MaxPool`."""

    spatial: ClassVar[int] = 1


@layer("max_pool2d")
class MaxPool2d(MaxPool):
    """Largest element of each window of images ``[N, C, H, W]``; fields and formula as in `MaxPool`."""

    spatial: ClassVar[int] = 2


@layer("max_pool3d")
class MaxPool3d(MaxPool):
    """Largest element of each window of volumes ``[N, C, D, H, W]``; fields and formula as in `MaxPool`."""

    spatial: ClassVar[int] = 3


@layer_base
class AvgPool(Pool):
    """Mean of each window.

    ::

        y[n, c, o] = Σ_k x[n, c, stride·o + k − padding] / size[o]

    Each channel is pooled separately. The number of windows is that of a `MaxPool1d`, along every axis. All as in
    PyTorch.

    Attributes
    ----------
    count_include_pad : whether the zeros of the padding count in the size of a window; elements that `ceil_mode` adds
        never do
    """

    count_include_pad: bool = True

    def divisors(self, windows: Windows, counts: Shape, sizes: Shape) -> Array:
        """Return the size of each window, ``[*counts]`` in float64."""
        divisors = np.ones((), np.float64)
        margins = windows.before if self.count_include_pad else (0,) * self.spatial
        axes = zip(counts, sizes, windows.kernel, windows.stride, windows.before, margins, strict=True)
        for n, size, taps, step, before, margin in axes:
            starts = np.arange(n) * step - before
            inside = np.minimum(starts + taps, size + margin) - np.maximum(starts, -margin)
            divisors = np.multiply.outer(divisors, inside)
        return divisors

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        windows, counts = self.windows(work.shape(x))
        sums = work.emit("pool_sum", (x,), **windows.attributes(counts))[0]
        divisors = self.divisors(windows, counts, work.shape(x)[2:])
        if divisors.min() == divisors.max():
            return work.affine(sums, 1 / float(divisors.flat[0]))
        return work.binary("div", sums, work.constant(divisors[None, None], "sizes of windows"))


@layer("avg_pool1d")
class AvgPool1d(AvgPool):
    """Mean of each window of sequences ``[N, C, L]``; fields and formula as in `AvgPool`."""

    spatial: ClassVar[int] = 1


@layer("avg_pool2d")
class AvgPool2d(AvgPool):
    """Mean of each window of images ``[N, C, H, W]``; fields and formula as in `AvgPool`."""

    spatial: ClassVar[int] = 2


@layer("avg_pool3d")
class AvgPool3d(AvgPool):
    """Mean of each window of volumes ``[N, C, D, H, W]``; fields and formula as in `AvgPool`."""

    spatial: ClassVar[int] = 3
