"""In NumPy: `sparse`: softmax over the few best keys."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.program.layer.attention.head_rules import SparseAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(SparseAttention)
class SparseOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        best = min(self.top_k, pairs.keys)
        seen = self.visible(pairs)
        return cross(p, self.heads, queries, keys, values, seen, keep=lambda logits: keep_largest(logits, best))
