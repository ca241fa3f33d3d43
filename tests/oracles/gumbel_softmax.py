"""In NumPy: softmax of logits with Gumbel noise: a differentiable stand-in for a random choice."""

from __future__ import annotations

from math import prod

import numpy as np

from tests.oracles.base import Arrays, Saved, oracle_of
from tests.oracles.memory import Memory, refuse_resets
from tests.oracles.softmax import SoftmaxOracle
from volumetric.base._typing import Array
from volumetric.graph.operations.noise import gumbel
from volumetric.layers.gumbel_softmax import GumbelSoftmax


@oracle_of(GumbelSoftmax)
class GumbelSoftmaxOracle(SoftmaxOracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        refuse_resets(self.kind, memory)
        start = memory.position if memory else 0
        *lead, rows, size = x.shape
        noise = gumbel(prod(lead) * size, start + np.arange(rows), self.seed).reshape(rows, *lead, size)
        return SoftmaxOracle.forward(self, p, x + np.moveaxis(noise, 0, -2).astype(x.dtype))
