"""In NumPy: mixture of experts: a trained gate gives every token its own weights for the branches of a Parallel."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.layers.gate import Gate


@oracle_of(Gate)
class GateOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        logits = affine(p, "", xs[0])
        if self.scoring == "softmax":
            kept = self._kept(logits)
            y = scores = softmax(kept)
        else:
            scores = softmax(logits) if self.scoring == "softmax_all" else sigmoid(logits)
            kept = self._kept(scores)
            y = np.where(np.isneginf(kept), scores.dtype.type(0), scores)
        return y, {"x": xs[0], "scores": scores, "kept": kept}

    def _kept(self, values: Array) -> Array:
        return values if self.top_k is None else keep_largest(values, self.top_k)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        scores, zero = saved["scores"], gy.dtype.type(0)
        dropped = np.isneginf(saved["kept"]) & (self.top_k is not None)
        if self.scoring == "softmax":  # a branch that is not taken has no gradient, not even beside NaN
            g_logits = np.where(dropped, zero, softmax_vjp(scores, gy))
        elif self.scoring == "softmax_all":  # its score is part of the others' sum
            g_logits = softmax_vjp(scores, np.where(dropped, zero, gy))
        else:
            g_logits = np.where(dropped, zero, gy) * scores * (1 - scores)
        gx = affine_vjp(p, "", saved["x"], g_logits, params)
        return Grads((gx,), params)
