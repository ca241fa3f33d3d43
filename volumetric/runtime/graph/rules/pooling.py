"""Rules of pooling layers, and of those that keep the last step of a sequence or give an array another shape."""

from __future__ import annotations

from math import prod

from volumetric._typing import Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.windows import Windows
from volumetric.layers import Flatten, LastStep, Reshape
from volumetric.layers.adaptive_pooling import AdaptiveMaxPool, AdaptivePool, ranges
from volumetric.layers.pooling import AvgPool, MaxPool
from volumetric.runtime.graph.rules.base import Scope, rule


def _fields(windows: Windows, counts: Shape) -> dict[str, Shape]:
    names = ("kernel", "stride", "dilation", "before")
    return {**{name: getattr(windows, name) for name in names}, "counts": counts}


@rule("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(scope: Scope, spec: MaxPool, x: int) -> int:
    return scope.work.emit("pool_max", (x,), **_fields(*spec.windows(scope.work.shape(x))))[0]


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(scope: Scope, spec: AvgPool, x: int) -> int:
    work = scope.work
    windows, counts = spec.windows(work.shape(x))
    sums = work.emit("pool_sum", (x,), **_fields(windows, counts))[0]
    divisors = spec.divisors(windows, counts, work.shape(x)[2:])
    if divisors.min() == divisors.max():
        return work.affine(sums, 1 / float(divisors.flat[0]))
    return work.binary("div", sums, work.constant(divisors[None, None], "sizes of windows"))


@rule(
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
)
def _adaptive(scope: Scope, spec: AdaptivePool, x: int) -> int:
    """Pool the axes one after the other, from the last: of equal elements the first of all is found that way."""
    work, largest = scope.work, isinstance(spec, AdaptiveMaxPool)
    wanted = spec.output_shape(work.shape(x))
    for axis in reversed(range(2, len(wanted))):
        shape = work.shape(x)
        lead, size, tail = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        lines = work.reshape(x, (lead, size, tail))
        if size % wanted[axis] == 0:
            pooled = _parts(work, lines, wanted[axis], largest=largest)
        else:
            cuts = (work.part(lines, 1, start, end) for start, end in ranges(size, wanted[axis]))
            pooled = work.concat([_parts(work, cut, 1, largest=largest) for cut in cuts], 1)
        x = work.reshape(pooled, (*shape[:axis], wanted[axis], *shape[axis + 1 :]))
    return x


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


@rule("reshape", "flatten")
def _reshape(scope: Scope, spec: Reshape | Flatten, x: int) -> int:
    return scope.work.reshape(x, spec.output_shape(scope.work.shape(x)))


@rule("last_step")
def _last_step(scope: Scope, spec: LastStep, x: int) -> int:
    work, shape = scope.work, scope.work.shape(x)
    return work.reshape(work.part(x, 1, shape[1] - 1, shape[1]), spec.output_shape(shape))
