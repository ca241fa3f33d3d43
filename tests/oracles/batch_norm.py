"""In NumPy: batchNorm (Ioffe & Szegedy 2015, arXiv 1502.03167), with torch's fields, and its running."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.channels import by_channel, sum_by_channel
from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.batch_norm import COUNT, BatchNorm


@oracle_of(BatchNorm)
class BatchNormOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        self.output_shape(x.shape)
        if not self.track_running_stats:
            return self._normalised(p, x, *_statistics(x), of_batch=True)
        return self._normalised(p, x, p["running_mean"], p["running_var"], of_batch=False)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        x, buffers = xs[0], self.buffers()
        if not training.may_change(tuple(spec.name for spec in buffers)):
            return self.forward(p, x)
        count = self.batch_size(x.shape)
        mean, var = _statistics(x)
        if buffers:
            part = x.dtype.type(1 if self.momentum is None else self.momentum)
            if self.momentum is None:
                seen = p[COUNT] + 1
                training.change(COUNT, seen)
                part = 1 / seen
            training.change("running_mean", (1 - part) * p["running_mean"] + part * mean)
            unbiased = var * x.dtype.type(count / (count - 1))
            training.change("running_var", (1 - part) * p["running_var"] + part * unbiased)
        return self._normalised(p, x, mean, var, of_batch=True)

    def _normalised(self, p: Arrays, x: Array, mean: Array, var: Array, *, of_batch: bool) -> tuple[Array, Saved]:
        scale = 1 / np.sqrt(by_channel(var, x.ndim) + x.dtype.type(self.eps))
        normal = (x - by_channel(mean, x.ndim)) * scale
        pre = normal
        if self.affine:
            pre = normal * by_channel(p["weight"], x.ndim) + by_channel(p["bias"], x.ndim)
        saved = {"normal": normal, "scale": scale, "pre": pre, "of_batch": of_batch}
        return activate(self.activation, pre), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        normal = saved["normal"]
        g = gy * slope(self.activation, saved["pre"])
        params: dict[str, Array] = {}
        inner = g
        if self.affine:
            inner = g * by_channel(p["weight"], g.ndim)
            params = {"weight": sum_by_channel(g * normal), "bias": sum_by_channel(g)}
        if saved["of_batch"]:
            axes = (0, *range(2, g.ndim))
            along = np.mean(inner * normal, axis=axes, keepdims=True)
            inner = inner - inner.mean(axis=axes, keepdims=True) - normal * along
        return Grads((saved["scale"] * inner,), params)


def _statistics(x: Array) -> tuple[Array, Array]:
    """Return mean and biased variance of each channel."""
    axes = (0, *range(2, x.ndim))
    mean = x.mean(axes)
    return mean, np.square(x - by_channel(mean, x.ndim)).mean(axes)
