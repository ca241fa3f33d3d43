"""In NumPy: `pooling`: the mean of what is read, for every query."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import only
from volumetric.base._typing import Array
from volumetric.program.layer.attention.row_rules import PoolingAttention, mean_shares
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(PoolingAttention)
class PoolingOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        seen = self.visible(pairs)
        if seen is None:
            mean = values.mean(1, keepdims=True).repeat(pairs.queries, 1)
        else:
            mean = mean_shares(seen).astype(values.dtype) @ values
        return only(affine(p, "proj.", mean), seen)
