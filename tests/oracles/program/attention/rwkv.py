"""In NumPy: `rwkv`: a mean of the source that fades, read in order."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.operations.linear_scan import run_linear_scan
from volumetric.program.layer.attention.rule_base import Pairs
from volumetric.program.layer.attention.scan_rules import BOUND, LEAST, RwkvAttention


@oracle_of(RwkvAttention)
class RWKVOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        weight = np.exp(np.clip(affine(p, "k.", keys), -BOUND, BOUND))
        v, first = affine(p, "v.", values), np.exp(p["bonus"])
        fade = np.exp(-np.exp(p["decay"]))
        num, den = (_before(run_linear_scan(u, fade, np.zeros_like(u[:, 0]))) for u in (weight * v, weight))
        wkv = (num + first * weight * v) / (den + first * weight + LEAST)
        read = wkv[:, np.minimum(np.arange(pairs.queries), pairs.keys - 1)]
        return affine(p, "o.", sigmoid(affine(p, "r.", queries)) * read)


def _before(s: Array) -> Array:
    """What there was before each step."""
    return np.concatenate([np.zeros_like(s[:, :1]), s[:, :-1]], axis=1)
