"""In NumPy: `none`: an edge that says that there is a relation, and writes nothing."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from volumetric._typing import Array
from volumetric.layers.program.attention.base import Pairs
from volumetric.layers.program.attention.moved import Nothing


@oracle_of(Nothing)
class NothingOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        return np.zeros_like(queries)
