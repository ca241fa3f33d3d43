"""In NumPy: `sigmoid`: attention whose weights do not compete."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import hidden, only, read, scores
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.program.layer.attention.base import Pairs
from volumetric.program.layer.attention.by_heads import Sigmoid


@oracle_of(Sigmoid)
class SigmoidOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        seen = self.seen(pairs)
        return only(read(p, sigmoid(hidden(scores(p, self.heads, queries, keys), seen)), values), seen)
