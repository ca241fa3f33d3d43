"""In NumPy: `copy`: what is read, as it is."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, oracle_of
from tests.oracles.program.attention.base import AttentionOracle
from volumetric.base._typing import Array
from volumetric.program.layer.attention.row_rules import CopyAttention
from volumetric.program.layer.attention.rule_base import Pairs


@oracle_of(CopyAttention)
class CopyOracle(AttentionOracle):
    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        beyond = max(pairs.queries - pairs.keys, 0)
        return np.pad(values[:, : pairs.queries], ((0, 0), (0, beyond), (0, 0)))
