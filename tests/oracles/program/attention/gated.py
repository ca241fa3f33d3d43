"""In NumPy: `gated`: softmax attention behind one learned gate."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.program.layer.attention.head_rules import GatedAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(GatedAttention)
class GatedOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        return sigmoid(p["gate"]) * cross(p, self.heads, queries, keys, values, self.visible(pairs))
