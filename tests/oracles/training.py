"""In NumPy: training: what a layer gets while it trains and has not at inference."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from volumetric.base._typing import Array
from volumetric.graph.numeric.counter_noise import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One pass of training through one layer.

    Attributes
    ----------
    learned : names of the buffers that this pass may change; a layer that may not change its own takes them as they are
    changes : receives the new value of each buffer that the layer changed
    prefix : what these names begin with: the place of the layer in its container
    path : of the layer in the network, ``"1.0.0.0/2"``
    noise : what random numbers depend on, see `layers.noise`
    first : rows of the batch that go before those of this pass
    penalties : path of a layer → what it adds to the sum of the loss's terms. Its VJP has their gradients, too
    """

    learned: frozenset[str] = frozenset()
    changes: dict[str, Array] = field(default_factory=dict)
    prefix: str = ""
    path: str = ""
    noise: Key = (0, 0)
    first: int = 0
    penalties: dict[str, Array] = field(default_factory=dict)

    def child(self, name: str) -> Training:
        """Return the same pass for a layer inside of this one."""
        return dataclasses.replace(self, prefix=f"{self.prefix}{name}/", path=f"{self.path}/{name}")

    def may_change(self, names: tuple[str, ...]) -> bool:
        """Whether the buffers called `names` are all to be learned."""
        return all(self.prefix + name in self.learned for name in names)

    def change(self, name: str, value: Array) -> None:
        """Give a buffer its new value."""
        self.changes[self.prefix + name] = value
