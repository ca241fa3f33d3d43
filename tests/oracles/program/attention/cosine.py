"""In NumPy: `cosine`: attention by the angle between queries and keys."""

from __future__ import annotations

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import apart, direction, hidden, only, read
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax
from volumetric.program.layer.attention.base import Pairs
from volumetric.program.layer.attention.by_heads import Cosine


@oracle_of(Cosine)
class CosineOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        q, k = (direction(apart(affine(p, n, x), self.heads)) for n, x in (("q.", queries), ("k.", keys)))
        seen = self.seen(pairs)
        logits = hidden(q @ k.swapaxes(2, 3) * p["temperature"], seen)
        return only(read(p, softmax(logits), values), seen)
