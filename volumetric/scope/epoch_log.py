"""Entries of epochs in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CAPACITY: Final = 128


class EpochLog:
    """Entries with ``step`` and ``epoch``; beyond 128, every second one is removed."""

    def __init__(self) -> None:
        self.entries: list[Mapping[str, Any]] = []
        self.changed: bool = False
        self._every = 1
        self._count = 0

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry. The newest one is always there, until the next."""
        if not {"step", "epoch"} <= entry.keys():
            raise KeyError("step and epoch")
        if self.entries and (self._count - 1) % self._every:
            self.entries.pop()
        self.entries.append(entry)
        self._count += 1
        self.changed = True
        if len(self.entries) > CAPACITY:
            self._every *= 2
            self.entries = self.entries[::2]

    def clear_after(self, step: float) -> None:
        """Remove entries after a step."""
        self.entries = [entry for entry in self.entries if int(entry["step"]) <= step]
        self.changed = True

    def thinned(self, most: int) -> list[Mapping[str, Any]]:
        """Return at most `most` entries, evenly spread, with the first and the last."""
        count = len(self.entries)
        if count <= most:
            return list(self.entries)
        return [self.entries[round(i * (count - 1) / max(1, most - 1))] for i in range(max(1, most))]
