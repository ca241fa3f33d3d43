"""What streams keep, as saved bytes take and give it."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.runtime.held import Held


class HeldValues:
    """Values by key, and how many rows or ticks there have been."""

    def __init__(self, values: Mapping[str, Held], position: int) -> None:
        self.values, self.position = values, position

    def read(self, key: str) -> Held:
        """Return what is kept under a key."""
        return self.values[key]

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all of it."""
        self.values, self.position = values, position
