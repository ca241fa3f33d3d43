"""In NumPy: `none`: an edge that says that there is a relation, and writes nothing."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from volumetric.base._typing import Array
from volumetric.program.layer.attention.row_rules import NoAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(NoAttention)
class NothingOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        return np.zeros_like(queries)
