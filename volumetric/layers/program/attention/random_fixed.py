"""`random_fixed`: softmax over keys that were drawn once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.program.attention.base import Pairs, attention, positive
from volumetric.layers.program.attention.heads import ByHeads
from volumetric.rng import generator


@attention("random_fixed")
class RandomFixed(ByHeads):
    """``cross`` over a few keys of each query, drawn without repetition from those that it may see.

    Attributes
    ----------
    count : keys of a query, all if there are fewer
    seed : query i draws by the stream i of this seed: the same keys whenever the program runs
    """

    count: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads", "count")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise SpecError(f"random_fixed: seed must be a whole number from 0 on, got {self.seed!r}")

    def seen(self, pairs: Pairs) -> Array | None:
        if self.count >= pairs.keys:
            return pairs.mask
        return _drawn(self.count, self.seed, pairs)


@lru_cache(maxsize=256)
def _drawn(count: int, seed: int, pairs: Pairs) -> Array:
    """Keys of each query, drawn once for the pairs of an edge."""
    found = np.zeros((pairs.queries, pairs.keys), np.bool_)
    for i in range(pairs.queries):
        may = np.arange(pairs.keys) if pairs.mask is None else np.flatnonzero(pairs.mask[i])
        found[i, generator(seed, i).permutation(may)[:count]] = True
    found.setflags(write=False)
    return found
