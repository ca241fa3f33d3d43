"""Softmax of logits with Gumbel noise: a differentiable stand-in for a random choice."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.graph.numeric.noise import gumbel
from volumetric.graph.state import refuse_resets
from volumetric.layers.base import Arrays, Memory, Saved, layer
from volumetric.layers.softmax import Softmax


@layer("gumbel_softmax")
class GumbelSoftmax(Softmax):
    """``y = softmax((x + g) / temperature)`` with ``g = -log(-log u)``, u uniform in (0, 1).

    The arg max of ``x + g`` is a sample from softmax(x); a low temperature brings y close to it (Jang et al. 2016,
    arXiv 1611.01144; Maddison et al. 2016, arXiv 1611.00712).

    The noise is a hash of `seed`, the row's position in its sequence (axis -2, counted on from call to call) and the
    place in the row (`volumetric.graph.numeric.noise.gumbel`): a run can be repeated on any device, and rows that
    arrive one by one get the same noise as rows that arrive together. The samples of a batch get noise of their own,
    by their place in it. Another seed gives other noise; of a seed beyond 64 bits the lower ones count.
    """

    contextual: ClassVar[bool] = True

    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        Softmax.__post_init__(self)
        if self.seed < 0:
            raise SpecError(f"gumbel_softmax: seed must not be below 0, got {self.seed}")

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        refuse_resets(self.kind, memory)
        start = memory.position if memory else 0
        *lead, rows, size = x.shape
        noise = gumbel(prod(lead) * size, start + np.arange(rows), self.seed).reshape(rows, *lead, size)
        return Softmax.forward(self, p, x + np.moveaxis(noise, 0, -2).astype(x.dtype))
