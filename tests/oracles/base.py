"""What an oracle is: a layer's forward pass and its gradients, written out in NumPy, apart from the graph."""

from __future__ import annotations

from typing import Any

from volumetric._typing import Array
from volumetric.layers.base import Arrays, Grads, Saved


class Oracle:
    """The arithmetic of one layer, which the graph that it writes is held to.

    Parameters
    ----------
    spec : the layer
    """

    spec: Any

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def forward(self, p: Arrays, *xs: Array) -> tuple[Array, Saved]:
        """Return the output, and what `vjp` needs."""
        raise NotImplementedError(self.spec.kind)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        """Return the gradients of ``sum(gy * y)``."""
        raise NotImplementedError(self.spec.kind)
