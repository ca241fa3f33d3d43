"""Softmax of logits with Gumbel noise: a differentiable approximation of a random choice."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import layer
from volumetric.layers.softmax import Softmax


@layer("gumbel_softmax")
class GumbelSoftmax(Softmax):
    """A softmax of logits with Gumbel noise.

    ::

        y = softmax((x + g) / τ),   g = −log(−log u),   u uniform in (0, 1)

    The arg max of ``x + g`` is a sample from softmax(x). A low temperature brings y close to it. The noise is a hash of
    three numbers: `seed`, the row's position in its sequence (axis −2, counted on from call to call), and the place in
    the row (`volumetric.graph.operations.noise.gumbel`). So a run can be repeated on any device, and rows that arrive
    one by one get the same noise as rows that arrive together. Each sample of a batch has its own noise, by its place
    in the batch. Only the lower 64 bits of a seed count.

    Jang et al. 2016 (arXiv 1611.01144); Maddison et al. 2016 (arXiv 1611.00712).

    Attributes
    ----------
    seed : of the noise; another seed gives other noise
    """

    contextual: ClassVar[bool] = True

    seed: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        Softmax.__post_init__(self)
        if self.seed < 0:
            raise SpecError(f"gumbel_softmax: seed must not be below 0, got {self.seed}")

    def emit(self, scope: Scope, x: int) -> int:
        """Move the axis of positions to the front, flatten the other axes, and add the noise."""
        work, shape = scope.work, scope.work.shape(x)
        if scope.resumes and len(shape) == 2:
            return Softmax.emit(self, scope, work.emit("gumbel", (x, work.positions()), seed=self.seed)[0])
        sequences = 1 if scope.resumes else scope.sequences
        whole = (sequences, *shape) if scope.resumes else (sequences, shape[0] // max(sequences, 1), *shape[1:])
        axes = len(whole)
        there = (0, axes - 2, *range(1, axes - 2), axes - 1)
        turned = work.permute(work.reshape(x, whole), there)
        ahead = work.shape(turned)
        rows = ahead[1]
        places = work.constant(np.tile(np.arange(rows, dtype=np.int32), sequences), "places")
        flat = work.reshape(turned, (sequences * rows, prod(ahead[2:])))
        noisy = work.reshape(work.emit("gumbel", (flat, places), seed=self.seed)[0], ahead)
        back = work.permute(noisy, tuple(there.index(i) for i in range(axes)))
        return Softmax.emit(self, scope, work.reshape(back, shape))
