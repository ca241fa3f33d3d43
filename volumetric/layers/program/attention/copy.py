"""`copy`: what is read, as it is."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.layers.base import Arrays, ParamSpec
from volumetric.layers.program.attention.base import Attention, Pairs, attention


@attention("copy")
class Copy(Attention):
    """Row i of the source for query i, zeros beyond its end. It has neither parameters nor heads."""

    whole = True

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return ()

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        beyond = max(pairs.queries - pairs.keys, 0)
        return np.pad(values[:, : pairs.queries], ((0, 0), (0, beyond), (0, 0)))
