"""In NumPy: `mixture`: experts that each know a part of the source."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.graph.numeric.softmax import softmax
from volumetric.program.layer.attention.composed_rules import MixtureAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(MixtureAttention)
class MixtureOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        parts = self.ranges(pairs.keys)
        logits = affine(p, "router.", queries)[..., : len(parts)]
        weights = softmax(keep_largest(logits, min(self.top_k, len(parts))))
        y = np.zeros_like(queries)
        for j, (start, stop) in enumerate(parts):
            own = cross(p, self.heads, queries, keys[:, start:stop], values[:, start:stop], prefix=f"experts.{j}.")
            y = y + np.where(weights[..., j : j + 1] == 0, y.dtype.type(0), weights[..., j : j + 1] * own)
        return y
