"""In NumPy: `cosine`: attention by the angle between queries and keys."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import apart, direction, hidden, only, read
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax
from volumetric.program.layer.attention.head_rules import CosineAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(CosineAttention)
class CosineOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        q, k = (direction(apart(affine(p, n, x), self.heads)) for n, x in (("q.", queries), ("k.", keys)))
        seen = self.visible(pairs)
        logits = hidden(q @ k.swapaxes(2, 3) * p["temperature"], seen)
        return only(read(p, softmax(logits), values), seen)
