"""BatchNorm (Ioffe & Szegedy 2015, arXiv 1502.03167), with torch's fields, and its running statistics as buffers."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.layers.channel_params import channel_params
from volumetric.layers.emit_scope import Scope, spread_by_channel
from volumetric.layers.layer_fields import activation_name, by_keyword, positional
from volumetric.layers.layer_spec import (
    BatchStatistics,
    ParamSpec,
    buffer,
    expect_positive,
    layer,
    layer_base,
    show_shape,
)
from volumetric.layers.windowed import Windowed

COUNT = "num_batches_tracked"
"""Buffer with the number of batches so far; only a momentum of None needs it."""


@layer_base
class BatchNorm(Windowed):
    """Normalised channels, over a batch.

    ::

        y = act((x − mean[c]) / √(var[c] + eps) · w[c] + b[c])
        running_mean ← (1 − momentum) · running_mean + momentum · mean          while training
        running_var  ← (1 − momentum) · running_var + momentum · var · n / (n − 1)

    Training uses the mean and the biased variance of each channel over the n samples and positions of a batch, and
    updates the running statistics. Inference and validation use the running statistics. All as in PyTorch, whose
    default momentum is the same.

    Gradients, with z the normalised input, h = gy · w and means over the batch:
    ``x̄ = (h − mean(h) − z · mean(h z)) / √(var + eps)``, ``w̄ = Σ gy z``, ``b̄ = Σ gy``. At inference
    ``x̄ = h / √(var + eps)``.

    The running statistics are buffers. They are stored with the weights under their own keys and saved in checkpoints.
    They do not count as parameters, and no optimiser, decay or clipping changes them. If several batches make one
    update, each of them updates the statistics, one after the other. If a pattern of `frozen` names them, and with
    low-rank overlays, they stay fixed, and training uses them as inference does.

    A batch needs more than one number per channel. Samples that are sequences of rows (``[samples, T, features]`` for a
    network of rows of features) have no batch statistics. Make each sequence one row instead:
    ``input_shape=(T, features)``.

    For inference, ``volumetric.builders.fold_batchnorm`` folds the layer into the one in front of it.

    Ioffe & Szegedy 2015 (arXiv 1502.03167).

    Attributes
    ----------
    num_features : channels of ``[N, C, …]``
    eps : added to the variance
    momentum : weight of a new batch in the running statistics; None: their plain mean over all batches
    affine : whether there are w and b
    track_running_stats : whether there are running statistics; without them inference uses those of its own batch
    activation : function of every element at the end
    """

    num_features: int = positional()
    eps: float = positional(default=1e-5)
    momentum: float | None = positional(default=0.1)
    affine: bool = True
    track_running_stats: bool = True
    activation: Activation = by_keyword(default="linear", converter=activation_name)

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_features")
        if self.momentum is not None and not 0 <= self.momentum <= 1:
            raise SpecError(f"{self.kind}: momentum must be in 0 … 1, got {self.momentum}", hint="None: a plain mean")

    @property
    def batch_statistics(self) -> BatchStatistics:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on a field)
        """When a row depends on the other samples of the batch."""
        return "training" if self.track_running_stats else "always"

    def params(self) -> tuple[ParamSpec, ...]:
        return channel_params(self.num_features) if self.affine else ()

    def buffers(self) -> tuple[ParamSpec, ...]:
        if not self.track_running_stats:
            return ()
        channels = (self.num_features,)
        running = buffer("running_mean", channels, "zeros"), buffer("running_var", channels, "ones")
        return running if self.momentum is not None else (*running, buffer(COUNT, (1,), "zeros"))

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = inputs[0]
        rows = self.spatial == 1 and len(shape) == 2
        if not (rows or len(shape) == 2 + self.spatial) or shape[1] != self.num_features or min(shape[1:]) < 1:
            more = f" or [N, {self.num_features}]" if self.spatial == 1 else ""
            raise ShapeError(
                f"{self.kind} expects [N, {self.num_features}, {self.axes}]{more}, got shape {show_shape(shape)}"
            )
        return shape

    def batch_size(self, shape: Shape) -> int:
        """Return the number of values per channel of a batch; raise `ShapeError` unless it is above 1."""
        channels = self.output_shape(shape)[1]
        count = int(np.prod(shape, dtype=np.int64)) // channels
        if count < 2:
            raise ShapeError(
                f"{self.kind} needs more than one value per channel in a batch, got shape {show_shape(shape)}",
                hint="use larger batches, or drop the last one: drop_last",
            )
        return count

    def emit(self, scope: Scope, x: int) -> int:
        """Normalise ``[N, C, positions]``: by batch statistics in training, else by the running statistics."""
        work, p, shape = scope.work, scope.params(self), self.output_shape(scope.work.shape(x))
        flat = work.reshape(x, (*shape[:2], prod(shape[2:])))
        learns = scope.may_change_buffers(self)
        if learns or not self.track_running_stats:
            mean = work.reduce(flat, "mean", (0, 2))
            centred = work.binary("sub", flat, mean)
            var = work.reduce(work.unary(centred, "square"), "mean", (0, 2))
            if learns:
                _track(scope, self, mean, var, self.batch_size(shape))
        else:
            running = scope.buffers(self)
            mean, var = (spread_by_channel(work, running[name], 3) for name in ("running_mean", "running_var"))
            centred = work.binary("sub", flat, mean)
        scale = work.unary(work.affine(var, 1.0, self.eps), "rsqrt")
        if self.affine:
            scale = work.binary("mul", scale, spread_by_channel(work, p["weight"], 3))
        y = work.binary("mul", centred, scale)
        if self.affine:
            y = work.binary("add", y, spread_by_channel(work, p["bias"], 3))
        return work.reshape(work.unary(y, self.activation), shape)


@layer("batch_norm1d")
class BatchNorm1d(BatchNorm):
    """Batch norm of rows ``[N, C]`` or sequences ``[N, C, L]``; fields and formula as in `BatchNorm`."""

    spatial: ClassVar[int] = 1


@layer("batch_norm2d")
class BatchNorm2d(BatchNorm):
    """Batch norm of images ``[N, C, H, W]``; fields and formula as in `BatchNorm`."""

    spatial: ClassVar[int] = 2


@layer("batch_norm3d")
class BatchNorm3d(BatchNorm):
    """Batch norm of volumes ``[N, C, D, H, W]``; fields and formula as in `BatchNorm`."""

    spatial: ClassVar[int] = 3


def _track(scope: Scope, spec: BatchNorm, mean: int, var: int, count: int) -> None:
    """Update the running statistics, if there are any, with those of a batch."""
    work, running = scope.work, scope.buffers(spec)
    if not running:
        return
    unbiased = work.affine(var, count / (count - 1))
    if spec.momentum is None:
        batches = work.affine(running[COUNT], 1.0, 1.0)
        scope.change_buffer(COUNT, batches)
        part = work.unary(batches, "reciprocal")
    else:
        part = work.scalar(spec.momentum)
    rest = work.affine(part, -1.0, 1.0)
    for name, of_batch in (("running_mean", mean), ("running_var", unbiased)):
        new = work.binary("mul", work.reshape(of_batch, (spec.num_features,)), part)
        scope.change_buffer(name, work.add(work.binary("mul", running[name], rest), new))
