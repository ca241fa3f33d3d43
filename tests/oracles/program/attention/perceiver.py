"""In NumPy: `perceiver`: reading through a few learned latents."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from tests.oracles.program.attention.heads import cross
from volumetric.base._typing import Array
from volumetric.program.layer.attention.composed_rules import COMPRESS, READOUT, PerceiverAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(PerceiverAttention)
class PerceiverOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        latents = np.broadcast_to(p["latents"], (len(queries), *p["latents"].shape))
        read = cross(p, self.heads, latents, keys, values, prefix=COMPRESS)
        return cross(p, self.heads, queries, read, read, prefix=READOUT)
