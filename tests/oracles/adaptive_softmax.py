"""In NumPy: a softmax in two steps for many classes of very unequal frequency."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Saved, oracle_of
from tests.oracles.softmax import AxisSoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.adaptive_softmax import AdaptiveSoftmax


@oracle_of(AdaptiveSoftmax)
class AdaptiveSoftmaxOracle(AxisSoftmaxOracle):
    def probabilities(self, z: Array) -> tuple[Array, Saved]:
        direct = self.cutoffs[0]
        head, *tails = (softmax(part) for part in np.split(z, self._bounds(direct + len(self.cutoffs)), axis=-1))
        parts = [head[..., direct + i, None] * tail for i, tail in enumerate(tails)]
        return np.concatenate([head[..., :direct], *parts], axis=-1), {"head": head, "tails": tails}

    def logits_vjp(self, saved: Saved, gy: Array) -> Array:
        direct = self.cutoffs[0]
        head, tails = saved["head"], saved["tails"]
        g_direct, *parts = np.split(gy, self._bounds(direct), axis=-1)
        g_clusters = [(g * tail).sum(axis=-1, keepdims=True) for g, tail in zip(parts, tails, strict=True)]
        g_head = softmax_vjp(head, np.concatenate([g_direct, *g_clusters], axis=-1))
        g_tails = [
            softmax_vjp(tail, head[..., direct + i, None] * g)
            for i, (g, tail) in enumerate(zip(parts, tails, strict=True))
        ]
        return np.concatenate([g_head, *g_tails], axis=-1)

    def _bounds(self, head: int) -> list[int]:
        """Where the clusters begin, in an axis that has `head` elements before the first of them."""
        return [head + cutoff - self.cutoffs[0] for cutoff in self.cutoffs]
