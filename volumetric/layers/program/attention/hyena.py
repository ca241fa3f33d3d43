"""`hyena`: gated long convolutions over the source, brought to the number of queries."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.attention.base import Attention, attention, positive
from volumetric.layers.program.attention.heads import square_maps


@attention("hyena")
class Hyena(Attention):
    """``a = W_o v + b_o`` after `order` gated convolutions of ``(v, x_1, …) = W_in x + b`` (Poli et al. 2023).

    x is the source as N rows: row i is the mean of rows ``⌊i M / N⌋ … ⌈(i + 1) M / N⌉ - 1``. Convolutions are products
    in the frequencies of length L, the least power of two from N on, 2 or more: ``v ← irfft(rfft(v · σ(G_i x_i + b), L)
    · F_i)`` cut to N rows, F_i complex for each feature. It has no heads.

    Attributes
    ----------
    order : convolutions
    length : L that the filters are made for; 0: that of the edge. A longer one is cut to its lowest frequencies
    """

    whole = True

    order: int = 2
    length: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "order")
        if not isinstance(self.length, int) or isinstance(self.length, bool) or self.length < 0:
            raise SpecError(f"hyena: length must be a whole number from 0 on, got {self.length!r}")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        length = self.length or transform_length(queries)
        if length < transform_length(queries):
            raise SpecError(
                f"hyena: filters of length {length} are too short for {queries} positions",
                hint=f"at least {transform_length(queries)}",
            )
        bins = length // 2 + 1
        return (
            *affine_params("in.", (self.order + 1) * d, d, bias=True),
            *(ParamSpec(name=f"filters.{i}", shape=(d, bins, 2), init="normal") for i in range(self.order)),
            *square_maps(d, *(f"gates.{i}." for i in range(self.order)), "o."),
        )


def transform_length(count: int) -> int:
    """Return the least power of two from `count` on, 2 or more."""
    return max(2, 1 << (count - 1).bit_length())


def bins(queries: int, keys: int) -> Array:
    """Weights that bring `keys` rows to `queries`: ``[N, M]``, the mean of overlapping ranges."""
    i, j = np.arange(queries)[:, None], np.arange(keys)
    inside = (j >= i * keys // queries) & (j < -(-(i + 1) * keys // queries))
    return inside / inside.sum(1, keepdims=True)
