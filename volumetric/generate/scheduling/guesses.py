"""Guesses beside other sequences: what drafts propose for a call, where that is likely to save more than it costs.

Rows are cheap beside one sequence, which reads all weights for each token, and dear beside many, which share them. So
what a proposed token costs is measured (`Prices`), and each sequence proposes only tokens that are likely enough to be
worth that (`Length`). Which tokens are drawn does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volumetric.generate.scheduling.pace import Prices

if TYPE_CHECKING:
    from volumetric.generate.drafting import Draft, Drafter
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.live import Live

MOST_ROWS = 256
"""Guesses in a call, of all sequences together."""
_FIRST, _MOST = 4, 16
"""Tokens of a first draft, and of any: two more after one that was right to its end, one less after another."""
_LIKELY, _KEPT, _FORGOTTEN = 0.7, 0.9, 0.01
"""Share of right guesses that is thought of at first, weight of it after a guess, and how much of it comes back."""


class Guesses:
    """Proposes tokens for the sequences of a scheduler.

    Parameters
    ----------
    model : checks the tokens
    draft : proposes them, where a job has nothing of its own
    prices : of guesses

    Raises
    ------
    SpecError, GenerationError : as `volumetric.generate.drafting.drafters`
    """

    def __init__(self, model: Model, draft: Draft | None, prices: Prices) -> None:
        self._make: Callable[[], Drafter] | None = None
        self._prices = prices
        if draft is not None:
            from volumetric.generate.drafting import drafters  # for those who draft

            self._make = drafters(model, draft)

    def guess(self, lives: Sequence[Live], fits: Callable[[], bool]) -> None:
        """Propose tokens for sequences that decode.

        Parameters
        ----------
        fits : whether there is memory for them; without it, none are made
        """
        price, room = self._prices.of(len(lives)), MOST_ROWS
        for live in lives:
            asked = live.ticket.job.held is not None  # by somebody who runs alone
            room -= propose(live, live.ticket.job.drafter or self._make, room, 0.0 if asked else price)
        if room < MOST_ROWS and not fits():
            for live in lives:
                live.guesses = []


def propose(live: Live, make: Callable[[], Drafter] | None, room: int = MOST_ROWS, price: float = 0.0) -> int:
    """Let a drafter propose the next tokens of a sequence, and return how many it has.

    Parameters
    ----------
    make : makes the drafter, when the sequence has none yet; None: nothing is proposed
    room : tokens, at most
    price : see `Length.most`
    """
    if live.drafter is None and make is not None:
        live.drafter = make()
    if live.drafter is None:
        return 0
    if live.length is None:
        live.length = Length()
    most = min(live.length.most(price), live.transcript.tokens_left - 1, room)
    live.guesses = live.drafter.propose(live.ids, most) if most > 0 else []
    return len(live.guesses)


def guessed_by(lives: Sequence[Live]) -> tuple[int, int]:
    """Return how many tokens were proposed so far, and how many of those were drawn, too."""
    return sum(live.transcript.drafted for live in lives), sum(live.transcript.accepted for live in lives)


class Length:
    """How many tokens to propose in a generation, by how many of those before were right.

    The first draft has 4 tokens; two more are tried after one that was right to its end, up to 16, and one less after
    another. Where guesses have a price, as beside other sequences, only those are made that are likely enough to be
    worth it, by the share of guesses that were right of late.
    """

    def __init__(self) -> None:
        self._most = _FIRST
        self._share = _LIKELY

    def most(self, price: float = 0.0) -> int:
        """Return the length of the next draft.

        Parameters
        ----------
        price : what a proposed token costs, as a share of what one is worth that is right
        """
        if price <= 0.0:
            return self._most
        if self._share <= price:
            self._share += _FORGOTTEN * (_LIKELY - self._share)  # it is tried again at times
            return 0
        # The n-th of a draft is right where all before it are, too.
        return min(self._most, int(math.log(price) / math.log(self._share)) if self._share < 1.0 else _MOST)

    def count(self, proposed: int, right: int) -> None:
        """Take notice of a draft: of so many tokens, the first ones were right."""
        if not proposed:
            return
        self._most = min(_MOST, self._most + 2) if right == proposed else max(1, self._most - 1)
        judged = right + (right < proposed)
        self._share += (1.0 - _KEPT**judged) * (right / judged - self._share)
