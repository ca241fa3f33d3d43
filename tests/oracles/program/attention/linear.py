"""In NumPy: `linear`: attention without a softmax, whose cost is linear in the keys."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import apart, only, together
from volumetric.base._typing import Array
from volumetric.program.layer.attention.head_rules import LEAST, LinearAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(LinearAttention)
class LinearOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        q, k = (_feature(apart(affine(p, n, x), self.heads)) for n, x in (("q.", queries), ("k.", keys)))
        v, seen = apart(affine(p, "v.", values), self.heads), self.visible(pairs)
        if seen is None:
            met, total = q @ (k.swapaxes(2, 3) @ v), q @ k.sum(2)[..., None]
        else:
            weights = q @ k.swapaxes(2, 3) * seen
            met, total = weights @ v, weights.sum(3, keepdims=True)
        return only(affine(p, "o.", together(met / (total + LEAST))), seen)


def _feature(x: Array) -> Array:
    """``elu(x) + 1``, which is above 0."""
    zero = x.dtype.type(0)
    return np.maximum(x, zero) + np.exp(np.minimum(x, zero))
