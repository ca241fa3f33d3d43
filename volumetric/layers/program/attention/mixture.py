"""`mixture`: experts that each know a part of the source."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.graph.numeric.largest import keep_largest
from volumetric.graph.numeric.softmax import softmax
from volumetric.layers.base import Arrays, ParamSpec
from volumetric.layers.dense import affine, affine_params
from volumetric.layers.program.attention.base import Pairs, attention, positive
from volumetric.layers.program.attention.heads import ByHeads, cross


@attention("mixture")
class Mixture(ByHeads):
    """``a = Σ_j w_j cross_j``, expert j on the j-th part of the keys, ``w = softmax(top_k(W q + b))`` for each query.

    Parts have ``max(1, ⌊M / experts⌋)`` keys, and the last what is left; an expert without keys is not chosen.

    Attributes
    ----------
    experts : how many
    top_k : experts that a query listens to
    """

    whole = True

    experts: int = 4
    top_k: int = 2

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads", "experts", "top_k")
        if self.top_k > self.experts:
            raise SpecError(f"mixture: top_k {self.top_k} is more than its {self.experts} experts")

    def params(self, d: int, queries: int) -> tuple[ParamSpec, ...]:
        maps = self.maps(d, *(f"experts.{j}." for j in range(self.experts)))
        return *maps, *affine_params("router.", self.experts, d, bias=True)

    def ranges(self, keys: int) -> list[tuple[int, int]]:
        """Keys of each expert that has some: the first, and one past the last."""
        size, last = max(1, keys // self.experts), self.experts - 1
        parts = [(j * size, keys if j == last else min((j + 1) * size, keys)) for j in range(self.experts)]
        return [(start, stop) for start, stop in parts if start < stop]

    def attend(self, p: Arrays, queries: Array, keys: Array, values: Array, pairs: Pairs) -> Array:
        parts = self.ranges(pairs.keys)
        logits = affine(p, "router.", queries)[..., : len(parts)]
        weights = softmax(keep_largest(logits, min(self.top_k, len(parts))))
        y = np.zeros_like(queries)
        for j, (start, stop) in enumerate(parts):
            own = cross(p, self.heads, queries, keys[:, start:stop], values[:, start:stop], prefix=f"experts.{j}.")
            y = y + np.where(weights[..., j : j + 1] == 0, y.dtype.type(0), weights[..., j : j + 1] * own)
        return y
