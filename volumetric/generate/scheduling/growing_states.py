"""Memory of the states of sequences that decode together: each call adds a row to each, and few need a new block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volumetric.generate.scheduling.generation_sequence import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volumetric.generate.scheduling.generation_sequence import GenerationSequence, StateBudget


class GrowingStates:
    """States that grow by a row in each call.

    Parameters
    ----------
    sequences : their sequences, in the device's loop and thus without followers
    room : memory of states

    Attributes
    ----------
    rows : rows of all sequences in the next call, one of each
    nbytes : memory that they need, with the rows of the call for which `grow` was called last
    """

    def __init__(self, sequences: Sequence[GenerationSequence], room: StateBudget) -> None:
        self.sequences = sequences
        self.rows = [(sequence, 1) for sequence in sequences]
        self.nbytes = sum(room.bytes_of(sequence.fed) for sequence in sequences)
        self._block = room.bytes_of(2 * BLOCK) - room.bytes_of(BLOCK)
        self._calls = 0
        self._opening = [0] * BLOCK
        for sequence in sequences:
            self._opening[-sequence.fed % BLOCK] += 1  # after so many calls, and every `BLOCK` calls from then on

    def grow(self) -> int:
        """Count the rows of a call, and return `nbytes`."""
        self.nbytes += self._opening[self._calls % BLOCK] * self._block
        self._calls += 1
        return self.nbytes
