"""Dropout (Srivastava et al. 2014, JMLR 15), with torch's field."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base.errors import SpecError
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import LayerSpec, layer


@layer("dropout")
class Dropout(LayerSpec):
    """Sets random elements to zero in training.

    ::

        y = x / (1 − p) where an element stays, else 0          while training
        y = x                                                   at inference and in validation

    Element i of the batch (in row-major order) stays if the upper 24 bits of ``pcg4d(i, place, key₀, key₁)`` are at
    least p · 2²⁴. ``place`` is a checksum of the layer's place in the network. The keys are
    ``pcg4d(seed, update, batch within the update)``, with the ``seed`` of the training configuration. pcg4d is the hash
    of Jarzynski & Olano 2020 (JCGT 9:3). So all devices drop the same elements, with any number of threads, and a
    resumed run drops the elements of an uninterrupted one. Other frameworks draw other numbers.

    The gradient is ``x̄ = gy / (1 − p)`` where the element stays, else 0. A dropped element has no effect, not even if
    it is NaN.

    Srivastava et al. 2014 (JMLR 15:1929).

    Attributes
    ----------
    p : probability of each element to be dropped, 0 … 1
    """

    draws: ClassVar[bool] = True
    inert: ClassVar[bool] = True

    p: float = positional(default=0.5)

    def __post_init__(self) -> None:
        """Check the fields."""
        if isinstance(self.p, bool) or not 0 <= self.p <= 1:
            raise SpecError(f"dropout: p must be in 0 … 1, got {self.p!r}")

    def emit(self, scope: Scope, x: int) -> int:
        if scope.training is None or self.p == 0:
            return x
        if scope.training.noise is None:
            raise SpecError(f"dropout at {scope.path} needs the key of a pass")
        return scope.work.emit("dropout", (x, scope.training.noise), p=float(self.p), stream=stream_of(scope.path))[0]
