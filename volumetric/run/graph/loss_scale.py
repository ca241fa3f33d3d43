"""Loss scaling: gradients are computed multiplied by a factor that keeps small ones within the range of float16.

The factor is a power of two that adapts, as in `torch.amp.GradScaler`: it doubles after `INTERVAL` updates without
overflow, and halves if the scaled gradients are not finite; that update writes nothing else. Micikevicius et al. 2017
(arXiv 1710.03740). All of it happens on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from volumetric.graph.build import GraphBuilder

LOSS_SCALE: Final = "loss scale"
"""Buffer [2] of the factor, and of the number of updates since it changed."""
FIRST: Final = (2.0**16, 0.0)
"""The buffer before the first update."""
INTERVAL: Final = 2000
MOST: Final = 2.0**24
LEAST: Final = 2.0**-16
"""If gradients overflow with this factor, the update is a fault and not skipped."""
_LARGEST = float(np.finfo(np.float32).max)


def finite_mask(work: GraphBuilder, x: int) -> int:
    """Emit 1 where `x` is finite, else 0: comparisons with NaN are false."""
    return work.binary("greater", work.scalar(_LARGEST), work.unary(x, "abs"))


@dataclass(frozen=True, slots=True)
class LossScale:
    """The loss scale in a graph: the tensors [1] of its factor and of the updates since it changed."""

    work: GraphBuilder
    factor: int
    count: int

    @classmethod
    def of(cls, work: GraphBuilder) -> LossScale:
        """Read the buffer."""
        return cls(work, *work.split(work.stored_tensor(LOSS_SCALE, (2,)), [1, 1], 0))

    def scale(self, seeds: Mapping[int, int], mean: int) -> dict[int, int]:
        """Multiply the seeds of differentiation, and with them all gradients.

        `mean` [1] is the factor that makes gradients of sums those of means, which are in the same range whatever the
        size of a batch.
        """
        work = self.work
        factor = work.binary("mul", self.factor, mean)
        return {
            i: work.binary("mul", seed, work.reshape(factor, (1,) * len(work.shape(seed)))) for i, seed in seeds.items()
        }

    def adapt(self, fits: int, judged: int, good: int) -> int:
        """Write the next factor; return 1 if the update was written or skipped, 0 if it is a fault.

        Parameters
        ----------
        fits : 1 if the scaled gradients are finite
        judged : 1 if the losses are finite, and nothing forbids to write
        good : 1 if the update was written
        """
        work = self.work
        may_skip = work.binary("mul", judged, work.binary("greater", self.factor, work.scalar(LEAST)))
        skipped = work.binary("mul", work.affine(fits, -1.0, 1.0), may_skip)
        count = work.binary("mul", work.affine(self.count, 1.0, 1.0), good)
        grows = work.binary("greater", count, work.scalar(INTERVAL - 0.5))
        factor = work.binary("mul", self.factor, work.affine(grows, 1.0, 1.0))
        factor = work.binary("mul", factor, work.affine(skipped, -0.5, 1.0))
        factor = work.binary("min", factor, work.scalar(MOST))
        count = work.binary("mul", count, work.affine(grows, -1.0, 1.0))
        passed = work.add(good, skipped)
        work.assign(LOSS_SCALE, work.concat([factor, count], 0), passed)
        return passed
