"""`local`: softmax over keys nearby."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.program.attention.base import Pairs, attention, positive
from volumetric.layers.program.attention.heads import ByHeads

Metric = Literal["order", "grid"]


@attention("local")
class Local(ByHeads):
    """``cross`` over keys nearby; a query that has none nearby is not written.

    Attributes
    ----------
    window : key j is near query i where ``|i - ⌊j N / M⌋| ≤ ⌊window / 2⌋``, in the order of positions, or where their
        distance on the canvas is at most ``window / 2``
    metric : ``"order"`` or ``"grid"``, which of the two
    """

    window: int = 8
    metric: Metric = "order"

    def __post_init__(self) -> None:
        """Check the fields."""
        positive(self, "heads", "window")
        if self.metric not in get_args(Metric):
            raise SpecError(f"local: unknown metric {self.metric!r}", hint="one of " + ", ".join(get_args(Metric)))

    def seen(self, pairs: Pairs) -> Array | None:
        if self.metric == "order":
            key = np.arange(pairs.keys) * pairs.queries // pairs.keys
            near = np.abs(np.arange(pairs.queries)[:, None] - key) <= self.window // 2
        elif pairs.places is None:
            raise SpecError("local with metric='grid' needs places on a canvas", hint="metric='order' goes without")
        else:
            asks, told = (place.astype(np.int64) for place in pairs.places)
            near = 4 * np.square(asks[:, None] - told).sum(2) <= self.window**2
        return near if pairs.mask is None else near & pairs.mask
