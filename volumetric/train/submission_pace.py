"""How many updates go to a device in one submission, by the time that an update takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

SECONDS: Final = 0.02
"""About how long the updates of a submission take: a stop, a report or an interrupt waits for them."""
MOST: Final = 64
"""Updates of a submission at most."""


@dataclass(slots=True)
class SubmissionPace:
    """The fastest update so far; the first ones of a run also compile.

    Attributes
    ----------
    seconds : of an update
    """

    seconds: float = inf

    def record(self, seconds: float) -> None:
        """Take the time of an update into account."""
        self.seconds = min(self.seconds, seconds)

    @property
    def steps(self) -> int:
        """Updates of the next submission."""
        return max(1, min(MOST, int(SECONDS / max(self.seconds, 1e-9))))
