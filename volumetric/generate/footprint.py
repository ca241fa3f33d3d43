"""Size of a model's weights, from their schemes and shapes, without reading them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from volumetric.dtypes import Scheme
from volumetric.network import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Size of stored weights.

    Attributes
    ----------
    elements : number of weights
    nbytes : bytes of payload, scales and offsets
    schemes : scheme → number of weights stored in it, in descending order
    """

    elements: int
    nbytes: int
    schemes: Mapping[Scheme, int]

    @property
    def bits_per_weight(self) -> float:
        """Average bits per weight, scales included."""
        return 8 * self.nbytes / self.elements if self.elements else 0.0

    @property
    def dtype(self) -> str:
        """The scheme of most weights, as text: ``"int4:g32"``."""
        return str(next(iter(self.schemes), "none"))


def footprint(params: Params) -> Footprint:
    """Return the footprint of `params`."""
    bits = (math.prod(store.shape) * store.scheme.bits_per_weight(store.shape) for store in params.values())
    schemes = params.schemes()
    return Footprint(elements=sum(schemes.values()), nbytes=math.ceil(sum(bits) / 8), schemes=schemes)
