"""`pooling`: the mean of what is read, for every query."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.layers.base import ParamSpec
from volumetric.layers.program.attention.base import Attention, attention
from volumetric.layers.program.attention.heads import square_maps


def shares(seen: Array) -> Array:
    """How much each key counts in the mean of a query, ``[N, M]``: zeros where it sees none."""
    return seen / seen.sum(1, keepdims=True).clip(1)


@attention("pooling")
class Pooling(Attention):
    """``a = W mean(v) + b``, the same for all queries that see the same keys. It has no heads."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return square_maps(d, "proj.")
