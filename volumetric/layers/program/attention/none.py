"""`none`: an edge that says that there is a relation, and writes nothing."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import Attention, Pairs, attention


@attention("none")
class Nothing(Attention):
    """No position is written, and none counts as written."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()

    def written(self, pairs: Pairs) -> Array:
        return np.zeros(pairs.queries, np.bool_)
