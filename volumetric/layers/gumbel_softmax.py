"""Softmax of logits with Gumbel noise: a differentiable stand-in for a random choice."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.base import Arrays, Memory, Saved, layer
from volumetric.layers.softmax import Softmax
from volumetric.layers.state import refuse_resets
from volumetric.rng import generator


@layer("gumbel_softmax")
class GumbelSoftmax(Softmax):
    """``y = softmax((x + g) / temperature)`` with ``g = -log(-log u)``, u uniform in (0, 1).

    The arg max of ``x + g`` is a sample from softmax(x); a low temperature brings y close to it (Jang et al. 2016,
    arXiv 1611.01144; Maddison et al. 2016, arXiv 1611.00712).

    The noise is a function of `seed` and the row's position in its sequence (axis -2, counted on from call to call):
    a run can be repeated, and rows that arrive one by one get the same noise as rows that arrive together. The samples
    of a batch get noise of their own, by their place in it. Another seed gives other noise.
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
        noise = np.empty_like(x)
        for t in range(x.shape[-2]):
            noise[..., t, :] = generator(self.seed, start + t).gumbel(size=noise[..., t, :].shape)
        return Softmax.forward(self, p, x + noise)
