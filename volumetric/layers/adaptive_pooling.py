"""Pooling to a fixed number of outputs along each spatial axis, for any size: torch's adaptive pooling.

Output o of n along an axis of size s pools the elements ``⌊o s / n⌋`` up to, not including, ``⌈(o + 1) s / n⌉``. These
ranges overlap if n does not divide s. A window is the product of one range for each axis, so the axes can be pooled
one after the other; 1 output pools the whole axis, which is called global pooling.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import layer, layer_base, show_shape
from volumetric.layers.windowed import Windowed


def ranges(size: int, count: int) -> list[tuple[int, int]]:
    """Return start and end of the elements that each of `count` outputs pools along an axis of `size` elements."""
    return [(i * size // count, -((i + 1) * size // -count)) for i in range(count)]


@layer_base
class AdaptivePool(Windowed):
    """What adaptive pooling layers have in common.

    Attributes
    ----------
    output_size : outputs along every spatial axis, or one number for each; 1 is global pooling
    """

    largest: ClassVar[bool] = False
    """Whether the largest element is taken, instead of the mean."""

    output_size: int | Shape = positional()

    def __post_init__(self) -> None:
        """Check the fields."""
        self.along("output_size", 1)

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        if len(shape) != 2 + self.spatial or min(shape[1:]) < 1:
            raise ShapeError(f"{self.kind} expects [N, C, {self.axes}], got shape {show_shape(shape)}")
        return (*shape[:2], *self.along("output_size", 1))

    def emit(self, scope: Scope, x: int) -> int:
        """Pool the axes one after the other, starting with the last, so that the first of equal elements wins."""
        work, largest = scope.work, self.largest
        target = self.output_shape(work.shape(x))
        for axis in reversed(range(2, len(target))):
            shape = work.shape(x)
            lead, size, tail = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
            lines = work.reshape(x, (lead, size, tail))
            if size % target[axis] == 0:
                pooled = _parts(work, lines, target[axis], largest=largest)
            else:
                cuts = (work.part(lines, 1, start, end) for start, end in ranges(size, target[axis]))
                pooled = work.concat([_parts(work, cut, 1, largest=largest) for cut in cuts], 1)
            x = work.reshape(pooled, (*shape[:axis], target[axis], *shape[axis + 1 :]))
        return x


@layer_base
class AdaptiveAvgPool(AdaptivePool):
    """Mean of each range.

    ::

        y[n, c, o] = mean(x[n, c, ⌊o·s / n⌋ … ⌈(o + 1)·s / n⌉ − 1])       along an axis of s elements, for n outputs

    Each channel is pooled separately. If n divides s the ranges are adjacent, else they overlap; with s < n elements
    repeat.
    """


@layer_base
class AdaptiveMaxPool(AdaptivePool):
    """Largest element of each range.

    ::

        y[n, c, o] = max(x[n, c, ⌊o·s / n⌋ … ⌈(o + 1)·s / n⌉ − 1])        along an axis of s elements, for n outputs

    Each channel is pooled separately. If n divides s the ranges are adjacent, else they overlap; with s < n elements
    repeat. The gradient goes to the first of equal elements.
    """

    largest: ClassVar[bool] = True


@layer("adaptive_avg_pool1d")
class AdaptiveAvgPool1d(AdaptiveAvgPool):
    """Means of sequences ``[N, C, L]``, a fixed number of them; formula as in `AdaptiveAvgPool`."""

    spatial: ClassVar[int] = 1


@layer("adaptive_avg_pool2d")
class AdaptiveAvgPool2d(AdaptiveAvgPool):
    """Means of images ``[N, C, H, W]``, a fixed number of them; formula as in `AdaptiveAvgPool`."""

    spatial: ClassVar[int] = 2


@layer("adaptive_avg_pool3d")
class AdaptiveAvgPool3d(AdaptiveAvgPool):
    """Means of volumes ``[N, C, D, H, W]``, a fixed number of them; formula as in `AdaptiveAvgPool`."""

    spatial: ClassVar[int] = 3


@layer("adaptive_max_pool1d")
class AdaptiveMaxPool1d(AdaptiveMaxPool):
    """Largest elements of sequences ``[N, C, L]``, a fixed number of them; formula as in `AdaptiveMaxPool`."""

    spatial: ClassVar[int] = 1


@layer("adaptive_max_pool2d")
class AdaptiveMaxPool2d(AdaptiveMaxPool):
    """Largest elements of images ``[N, C, H, W]``, a fixed number of them; formula as in `AdaptiveMaxPool`."""

    spatial: ClassVar[int] = 2


@layer("adaptive_max_pool3d")
class AdaptiveMaxPool3d(AdaptiveMaxPool):
    """Largest elements of volumes ``[N, C, D, H, W]``, a fixed number of them; formula as in `AdaptiveMaxPool`."""

    spatial: ClassVar[int] = 3


def _parts(work: GraphBuilder, x: int, count: int, *, largest: bool) -> int:
    """Pool ``[lead, size, tail]`` to `count` parts of equal length, ``[lead, count, tail]``."""
    lead, size, tail = work.shape(x)
    if not largest:
        means = work.reduce(work.reshape(x, (lead, count, size // count, tail)), "mean", (2,))
        return work.reshape(means, (lead, count, tail))
    step = (size // count, 1)
    image = work.reshape(x, (lead, 1, size, tail))
    top = work.emit(
        "pool_max", (image,), kernel=step, stride=step, dilation=(1, 1), before=(0, 0), counts=(count, tail)
    )[0]
    return work.reshape(top, (lead, count, tail))
