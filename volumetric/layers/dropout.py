"""Dropout (Srivastava et al. 2014, JMLR 15), with torch's field."""

from __future__ import annotations

from typing import ClassVar

from volumetric.errors import SpecError
from volumetric.graph.numeric.noise import stream_of
from volumetric.layers.base import LayerSpec, layer
from volumetric.layers.scope import Scope


@layer("dropout")
class Dropout(LayerSpec):
    """While training, each element is 0 with the chance `p`, else ``x / (1 - p)``; at inference ``y = x``.

    Which elements are dropped is a hash of the run's seed, the update, the place of the layer, and that of the element
    in the batch: the same on every device, with any number of threads, and in a run that was resumed.

    Attributes
    ----------
    p : chance of each element to be dropped, 0 … 1
    """

    draws: ClassVar[bool] = True
    inert: ClassVar[bool] = True

    p: float = 0.5

    def __post_init__(self) -> None:
        """Check the fields."""
        if isinstance(self.p, bool) or not 0 <= self.p <= 1:
            raise SpecError(f"dropout: p must lie in 0 … 1, got {self.p!r}")

    def emit(self, scope: Scope, x: int) -> int:
        if scope.training is None or self.p == 0:
            return x
        if scope.training.noise is None:
            raise SpecError(f"dropout at {scope.path} needs the key of a pass")
        return scope.work.emit("dropout", (x, scope.training.noise), p=float(self.p), stream=stream_of(scope.path))[0]
