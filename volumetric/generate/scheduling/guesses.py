"""Guesses beside other sequences: what drafts propose for a call, where that is likely to save more than it costs.

Rows are cheap beside one sequence, which reads all weights for each token, and dear beside many, which share them. So
what a proposed token costs is measured, by the number of sequences: the time that it adds to a call, as a share of the
time that a token takes without. Each sequence proposes only tokens that are likely enough to be worth that (`Length`).
Which tokens are drawn does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volumetric.generate.scheduling.live import Live

if TYPE_CHECKING:
    from volumetric.generate.drafting import Draft, Drafter
    from volumetric.generate.model import Model

MOST_ROWS = 256
"""Guesses in a call, of all sequences together."""
_FIRST_PRICE, _EACH_PRICE, _LEAST_PRICE, _MOST_PRICE = 0.2, 0.02, 0.05, 0.95
"""Of a guess beside nobody, what each other sequence adds to it as long as nothing was measured, and bounds."""
_WEIGHT = 0.1  # of the last call in the running means
_FORGOTTEN = 0.002  # of a price after a call without guesses: other loads have other prices


class Guesses:
    """Proposes tokens for the sequences of a scheduler.

    Parameters
    ----------
    model : checks the tokens
    draft : proposes them, where a job has nothing of its own

    Raises
    ------
    SpecError, GenerationError : as `volumetric.generate.drafting.drafters`
    """

    def __init__(self, model: Model, draft: Draft | None) -> None:
        self._make: Callable[[], Drafter] | None = None
        if draft is not None:
            from volumetric.generate.drafting import drafters  # for those who draft

            self._make = drafters(model, draft)
        self._plain: dict[int, float] = {}
        """Seconds of a call without guesses, by the magnitude of the number of sequences."""
        self._prices: dict[int, float] = {}

    def guess(self, lives: Sequence[Live], fits: Callable[[], bool]) -> None:
        """Propose tokens for sequences that decode.

        Parameters
        ----------
        fits : whether there is memory for them; without it, none are made
        """
        price, room = self._price(len(lives)), MOST_ROWS
        for live in lives:
            if self._drafter(live) is None:
                continue
            asked = live.ticket.job.held is not None  # by somebody who runs alone
            most = min(live.length.most(0.0 if asked else price), live.transcript.tokens_left - 1, room)
            if most > 0:
                assert live.drafter is not None
                live.guesses = live.drafter.propose(live.ids, most)
                room -= len(live.guesses)
        if room < MOST_ROWS and not fits():
            for live in lives:
                live.guesses = []

    def count(self, sequences: int, guessed: int, seconds: float) -> None:
        """Take notice of a call: its sequences, their guesses, and the time of both."""
        size = sequences.bit_length()
        if not guessed:
            plain = self._plain.setdefault(size, seconds)
            self._plain[size] = plain + _WEIGHT * (seconds - plain)
            if size in self._prices:
                self._prices[size] += _FORGOTTEN * (_first(sequences) - self._prices[size])
        elif (plain := self._plain.get(size)) is not None and plain > 0.0:
            measured = (seconds - plain) / guessed / (plain / sequences)
            price = self._prices.setdefault(size, self._price(sequences))
            measured = min(_MOST_PRICE, max(_LEAST_PRICE, measured))
            self._prices[size] = price + _WEIGHT * (measured - price)

    def _price(self, sequences: int) -> float:
        """Cost of a guess as a share of what a right one saves."""
        return self._prices.get(sequences.bit_length(), _first(sequences))

    def _drafter(self, live: Live) -> Drafter | None:
        if live.drafter is None:
            make = live.ticket.job.drafter or self._make
            live.drafter = None if make is None else make()
        return live.drafter


def guessed_by(lives: Sequence[Live]) -> tuple[int, int]:
    """Return how many tokens were proposed so far, and how many of those were drawn, too."""
    return sum(live.transcript.drafted for live in lives), sum(live.transcript.accepted for live in lives)


def _first(sequences: int) -> float:
    """Price of a guess as long as nothing was measured."""
    return min(_MOST_PRICE, _FIRST_PRICE + _EACH_PRICE * (sequences - 1))
