"""How graphs of training read weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from volumetric.base._typing import Shape
from volumetric.graph.build import GraphBuilder

GetWeight: TypeAlias = Callable[[str, Shape], int]


class WeightReader(Protocol):
    """Maps key and shape of a parameter to the tensor that the forward pass uses."""

    def __call__(self, key: str, shape: Shape, /) -> int:
        """Return the tensor of a parameter."""
        ...

    def stack(self, keys: Sequence[str], /) -> int | None:
        """Return the tensor in which parameters are stacked, or None."""
        ...


EmitWeights: TypeAlias = Callable[[GraphBuilder], WeightReader]
