"""`mixture`: experts that each know a part of the source."""

from __future__ import annotations

from volumetric.errors import SpecError
from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.attention.base import attention, positive
from volumetric.layers.program.attention.heads import ByHeads


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
