"""In NumPy: `sparse`: softmax over the few best keys."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.graph.numeric.largest import keep_largest
from volumetric.program.layer.attention.base import Pairs
from volumetric.program.layer.attention.by_heads import Sparse


@oracle_of(Sparse)
class SparseOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        best = min(self.top_k, pairs.keys)
        seen = self.seen(pairs)
        return cross(p, self.heads, queries, keys, values, seen, keep=lambda logits: keep_largest(logits, best))
