"""In NumPy: `sigmoid`: attention whose weights do not compete."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import hidden, only, read, scores
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.program.layer.attention.head_rules import SigmoidAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(SigmoidAttention)
class SigmoidOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        seen = self.visible(pairs)
        return only(read(p, sigmoid(hidden(scores(p, self.heads, queries, keys), seen)), values), seen)
