"""`pooling`: the mean of what is read, for every query."""

from __future__ import annotations

from volumetric._typing import Array
from volumetric.layers.base import Arrays, ParamSpec
from volumetric.layers.dense import affine
from volumetric.layers.program.attention.base import Attention, Pairs, attention
from volumetric.layers.program.attention.heads import only, square_maps


def shares(seen: Array) -> Array:
    """How much each key counts in the mean of a query, ``[N, M]``: zeros where it sees none."""
    return seen / seen.sum(1, keepdims=True).clip(1)


@attention("pooling")
class Pooling(Attention):
    """``a = W mean(v) + b``, the same for all queries that see the same keys. It has no heads."""

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        return square_maps(d, "proj.")

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        seen = self.seen(pairs)
        if seen is None:
            mean = values.mean(1, keepdims=True).repeat(pairs.queries, 1)
        else:
            mean = shares(seen).astype(values.dtype) @ values
        return only(affine(p, "proj.", mean), seen)
