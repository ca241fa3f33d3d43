"""Softmax over a fixed part of an axis."""

from __future__ import annotations

import numpy as np

from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import layer
from volumetric.layers.softmax import Softmax


@layer("masked_softmax")
class MaskedSoftmax(Softmax):
    """A softmax over the elements where `mask` is true.

    ::

        y_i = mask_i exp(x_i / τ) / Σ_j mask_j exp(x_j / τ)

    Where the mask is false, y and the gradient are 0, even if the logit is NaN. A mask that removes everything gives
    zeros.

    Attributes
    ----------
    mask : true for the elements that take part
    """

    mask: tuple[bool, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        Softmax.__post_init__(self)
        if not self.mask:
            raise SpecError("masked_softmax: mask must not be empty")

    def outcomes(self, size: int) -> int:
        if size != len(self.mask):
            raise ShapeError(f"masked_softmax: the mask is for {len(self.mask)} logits, got {size}")
        return size

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        mask = np.array([self.mask], np.float64)
        return work.softmax(z if mask.all() else work.binary("mask", z, work.constant(mask, "mask")))
