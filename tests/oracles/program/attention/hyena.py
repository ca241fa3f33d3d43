"""In NumPy: `hyena`: gated long convolutions over the source, brought to the number of queries."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.program.attention.base import AttentionOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.program.layer.attention.fft_rules import HyenaAttention, bins, transform_length
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(HyenaAttention)
class HyenaOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        count, d = pairs.queries, values.shape[-1]
        length = transform_length(count)
        x = values if pairs.keys == count else bins(count, pairs.keys).astype(values.dtype) @ values
        made = affine(p, "in.", x)
        v = made[..., :d]
        for i in range(self.order):
            gate = sigmoid(affine(p, f"gates.{i}.", made[..., (i + 1) * d : (i + 2) * d]))
            taken = p[f"filters.{i}"][:, : length // 2 + 1]
            response = (taken[..., 0] + 1j * taken[..., 1]).T
            v = np.fft.irfft(np.fft.rfft(v * gate, length, axis=1) * response, length, axis=1)[:, :count]
            v = v.astype(values.dtype)
        return affine(p, "o.", v)
