"""`linear`: attention without a softmax, whose cost is linear in the keys."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.layers.base import Arrays
from volumetric.layers.dense import affine
from volumetric.layers.program.attention.base import Pairs, attention
from volumetric.layers.program.attention.heads import ByHeads, apart, only, together

LEAST = 1e-6
"""Added to the sum that results are divided by."""


@attention("linear")
class Linear(ByHeads):
    """``a = W_o φ(q) (φ(k)ᵀ v) / (φ(q) · Σ φ(k) + 1e-6) + b_o`` by heads, φ(x) = elu(x) + 1.

    Katharopoulos et al. 2020, arXiv 2006.16236.
    """

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        q, k = (_feature(apart(affine(p, n, x), self.heads)) for n, x in (("q.", queries), ("k.", keys)))
        v, seen = apart(affine(p, "v.", values), self.heads), self.seen(pairs)
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
