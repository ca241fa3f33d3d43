"""What an oracle is: a layer's forward pass and its gradients, written out in NumPy, apart from the graph."""

from __future__ import annotations

from typing import Any

from volumetric._typing import Array
from volumetric.layers.base import Arrays, Grads, Memory, Saved
from volumetric.layers.training import Training


class Oracle:
    """The arithmetic of one layer, which the graph that it writes is held to.

    Parameters
    ----------
    spec : the layer
    """

    spec: Any

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def __getattr__(self, name: str) -> Any:
        """Return a field or a method of the layer."""
        return getattr(self.spec, name)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        """Return the output, and what `vjp` needs; with a `memory` the rows go on from those that it counts."""
        raise NotImplementedError(self.spec.kind)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        """Return the output as it is while training; for most layers that is `forward` of whole sequences."""
        return self.forward(p, *xs)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        """Return the gradients of ``sum(gy * y)``."""
        raise NotImplementedError(self.spec.kind)
