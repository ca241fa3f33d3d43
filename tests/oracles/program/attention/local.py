"""In NumPy: `local`: softmax over keys nearby."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.program.layer.attention.head_rules import LocalAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(LocalAttention)
class LocalOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        return cross(p, self.heads, queries, keys, values, self.visible(pairs))
