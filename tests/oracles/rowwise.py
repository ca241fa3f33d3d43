"""Layers that treat each row on its own, written out in NumPy."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.clamp import Clamp
from volumetric.layers.discrete import Discrete
from volumetric.layers.flatten import Flatten
from volumetric.layers.kmeans import KMeans
from volumetric.layers.last_step import LastStep
from volumetric.layers.reshape import Reshape
from volumetric.layers.scale import Scale
from volumetric.layers.softmax import Softcap


@oracle_of(Scale)
class ScaleOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0] * xs[0].dtype.type(self.spec.factor), {}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy * gy.dtype.type(self.spec.factor),))


@oracle_of(Clamp)
class ClampOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        low, high = (None if bound is None else x.dtype.type(bound) for bound in (self.spec.min, self.spec.max))
        outside = np.zeros(x.shape, bool)
        for bound, beyond in ((low, np.less), (high, np.greater)):
            if bound is not None:
                outside |= beyond(x, bound)
        return np.clip(x, low, high), {"outside": outside}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((np.where(saved["outside"], gy.dtype.type(0), gy),))


@oracle_of(Discrete)
class DiscreteOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        if self.spec.function == "ternary":
            bound = x.dtype.type(self.spec.threshold)
            y = np.maximum(np.sign(x - bound), 0) + np.minimum(np.sign(x + bound), 0)
        else:
            y = np.sign(x)
            if self.spec.function == "step":
                y = np.maximum(y, 0)
        return y, {"x": x}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        far = np.abs(saved["x"])
        if self.spec.surrogate == "none":
            return Grads((np.zeros_like(gy),))
        inside = far <= 1
        slope = inside if self.spec.surrogate == "clip" else np.where(inside, 1 - far, 0)
        return Grads(((gy * slope).astype(gy.dtype),))


@oracle_of(Softcap)
class SoftcapOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        cap = xs[0].dtype.type(self.spec.cap)
        t = np.tanh(xs[0] / cap)
        return cap * t, {"t": t}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy * (1 - np.square(saved["t"])),))


@oracle_of(Reshape)
class ReshapeOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0].reshape(self.spec.output_shape(xs[0].shape)), {"shape": xs[0].shape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy.reshape(saved["shape"]),))


@oracle_of(Flatten)
class FlattenOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0].reshape(self.spec.output_shape(xs[0].shape)), {"shape": xs[0].shape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy.reshape(saved["shape"]),))


@oracle_of(LastStep)
class LastStepOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        self.spec.output_shape(xs[0].shape)
        return xs[0][:, -1], {"shape": xs[0].shape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gx = np.zeros(saved["shape"], gy.dtype)
        gx[:, -1] = gy
        return Grads((gx,))


@oracle_of(KMeans)
class KMeansOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        # ‖x‖² is the same for every centre and cancels. From the mean of the centres, the two other terms of the
        # square are as small as the distances themselves, so that data far from the origin keep their precision.
        middle = p["centers"].mean(axis=0)
        x, centers = xs[0] - middle, p["centers"] - middle
        logits = (x @ centers.T - (centers * centers).sum(-1) / 2) / self._variance(x)
        assigned = softmax(logits)
        y = assigned if self.spec.output == "probabilities" else assigned @ p["centers"]
        return y, {"x": x, "centers": centers, "assigned": assigned}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        x, centers, assigned = saved["x"], saved["centers"], saved["assigned"]
        features = self.spec.output == "features"
        g = softmax_vjp(assigned, gy @ p["centers"].T if features else gy) / self._variance(gy)
        gx = g @ centers  # minus x Σₖ gₖ, which is 0
        g_centers = rows(g).T @ rows(x) - rows(g).sum(0)[:, None] * centers
        if features:
            g_centers = g_centers + rows(assigned).T @ rows(gy)
        return Grads((gx,), {"centers": g_centers})

    def _variance(self, like: Array) -> Array:
        return like.dtype.type(self.spec.temperature**2)
