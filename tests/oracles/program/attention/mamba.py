"""In NumPy: `mamba`: a selective state-space model over the source, whose results are read by likeness."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.dense import affine
from tests.oracles.numeric.norms import standardised
from tests.oracles.program.attention.base import AttentionOracle
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate
from volumetric.graph.numeric.softmax import softmax
from volumetric.graph.operations.linear_scan import run_linear_scan
from volumetric.graph.operations.state_space import softplus
from volumetric.program.layer.attention.rule_base import Pairs
from volumetric.program.layer.attention.scan_rules import EPS, MambaAttention


@oracle_of(MambaAttention)
class MambaOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        batch, count, d = values.shape
        size = self.state_size
        x, z = np.split(affine(p, "in.", values), 2, axis=-1)
        r, b, c = np.split(affine(p, "x.", x), [self.rank(d), self.rank(d) + size], axis=-1)
        step = softplus(affine(p, "dt.", r))
        rates = np.arange(1, size + 1).astype(x.dtype)
        decay = np.exp(-step[..., None] * rates).reshape(batch, count, d * size)
        driven = ((step * x)[..., None] * b[:, :, None]).reshape(batch, count, d * size)
        s = run_linear_scan(driven, decay, np.zeros((batch, d * size), x.dtype)).reshape(batch, count, d, size)
        told = ((s * c[:, :, None]).sum(-1) + p["d"] * x) * activate("silu", z)
        asked = standardised(queries, EPS)[0] * p["norm.weight"] + p["norm.bias"]
        weights = softmax(asked @ told.swapaxes(1, 2) * x.dtype.type(d**-0.5))
        return affine(p, "o.", weights @ told)
