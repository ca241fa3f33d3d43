"""The memory that states take: known before a call, bounded by the scheduler's limit."""

from __future__ import annotations

from volumetric.runtime.device import MemoryReport

BLOCK = 32
"""Rows that devices allocate together: a page of a GPU, two blocks of keys on a CPU."""


class Room:
    """Bytes of states by their rows.

    Parameters
    ----------
    memory : of the executable
    limit : bytes of all states; None: no bound
    """

    def __init__(self, memory: MemoryReport, limit: int | None) -> None:
        self._row, self._fixed = memory.state_per_token, memory.state_fixed
        self._block = memory.block
        self.limit = limit

    def bytes_of(self, rows: int) -> int:
        """Bytes of a state of so many rows that goes on."""
        return self._fixed + -(-rows // BLOCK) * BLOCK * self._row if rows else 0

    def bytes_kept(self, rows: int) -> int:
        """Bytes of a state of so many rows that has no room for more."""
        return self._fixed + -(-rows // self._block) * self._block * self._row if rows else 0

    def rows(self, states: int) -> int | None:
        """Return how many rows each of so many equal states may have; None: any number."""
        if self.limit is None or not self._row:
            return None
        return max(0, (self.limit // states - self._fixed) // (BLOCK * self._row) * BLOCK)
