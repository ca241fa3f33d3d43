"""Rules of norms of channels: over groups of them within a sample, and over the samples of a batch."""

from __future__ import annotations

from math import prod

from volumetric.graph.build import GraphBuilder
from volumetric.layers import GroupNorm
from volumetric.layers.batch_norm import COUNT, BatchNorm
from volumetric.runtime.graph.rules.base import Scope, rule


def _by_channel(work: GraphBuilder, vector: int, axes: int) -> int:
    """View ``[C]`` so that it broadcasts over ``[N, C, …]``."""
    return work.reshape(vector, (1, *work.shape(vector), *(1,) * (axes - 2)))


@rule("group_norm")
def _group_norm(scope: Scope, spec: GroupNorm, x: int) -> int:
    work, p, shape = scope.work, scope.params(spec), scope.work.shape(x)
    groups = (shape[0] * spec.num_groups, prod(shape[1:]) // spec.num_groups)
    y = work.reshape(work.norm(work.reshape(x, groups), kind="layer", eps=spec.eps), shape)
    if spec.affine:
        gain, bias = (_by_channel(work, p[name], len(shape)) for name in ("weight", "bias"))
        y = work.binary("add", work.binary("mul", y, gain), bias)
    return work.unary(y, spec.activation)


@rule("batch_norm1d", "batch_norm2d", "batch_norm3d")
def _batch_norm(scope: Scope, spec: BatchNorm, x: int) -> int:
    """Normalise ``[N, C, positions]``: by the batch while training, else by the running statistics."""
    work, p, shape = scope.work, scope.params(spec), spec.output_shape(scope.work.shape(x))
    flat = work.reshape(x, (*shape[:2], prod(shape[2:])))
    learns = scope.may_change(spec)
    if learns or not spec.track_running_stats:
        mean = work.reduce(flat, "mean", (0, 2))
        centred = work.binary("sub", flat, mean)
        var = work.reduce(work.unary(centred, "square"), "mean", (0, 2))
        if learns:
            _track(scope, spec, mean, var, spec.batch_size(shape))
    else:
        running = scope.buffers(spec)
        mean, var = (_by_channel(work, running[name], 3) for name in ("running_mean", "running_var"))
        centred = work.binary("sub", flat, mean)
    scale = work.unary(work.affine(var, 1.0, spec.eps), "rsqrt")
    if spec.affine:
        scale = work.binary("mul", scale, _by_channel(work, p["weight"], 3))
    y = work.binary("mul", centred, scale)
    if spec.affine:
        y = work.binary("add", y, _by_channel(work, p["bias"], 3))
    return work.reshape(work.unary(y, spec.activation), shape)


def _track(scope: Scope, spec: BatchNorm, mean: int, var: int, count: int) -> None:
    """Move the running statistics, where there are any, towards those of a batch."""
    work, running = scope.work, scope.buffers(spec)
    if not running:
        return
    unbiased = work.affine(var, count / (count - 1))
    if spec.momentum is None:
        seen = work.affine(running[COUNT], 1.0, 1.0)
        scope.change(COUNT, seen)
        part = work.unary(seen, "reciprocal")
    else:
        part = work.scalar(spec.momentum)
    rest = work.affine(part, -1.0, 1.0)
    for name, of_batch in (("running_mean", mean), ("running_var", unbiased)):
        new = work.binary("mul", work.reshape(of_batch, (spec.num_features,)), part)
        scope.change(name, work.add(work.binary("mul", running[name], rest), new))
