"""Guesses beside other sequences: what drafts propose for a call, where that is likely to save more than it costs.

Rows are cheap beside one sequence, which reads all weights for each token, and dear beside many, which share them. So
what a proposed token costs is measured (`Prices`), and each sequence proposes only tokens that are likely enough to be
worth that (`Length`). Which tokens are drawn does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volumetric.generate.scheduling.pace import Prices

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.drafting import Draft, Drafter
    from volumetric.generate.scheduling.live import Live

MOST_ROWS = 256
"""Guesses in a call, of all sequences together."""


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

    def __init__(self, model: CompiledModel, draft: Draft | None, prices: Prices) -> None:
        self._make: Callable[[], Drafter] | None = None
        self._prices = prices
        if draft is not None:
            from volumetric.generate.drafting import drafters  # most generate without a draft

            self._make = drafters(model, draft)

    def guess(self, lives: Sequence[Live], fits: Callable[[], bool]) -> None:
        """Propose tokens for sequences that decode.

        Parameters
        ----------
        fits : whether there is memory for them; without it, none are made
        """
        price, room = self._prices.of(len(lives)), MOST_ROWS
        for live in lives:
            alone = live.ticket.job.held is not None  # by somebody who runs alone
            room -= propose(live, live.ticket.job.drafter or self._make, room, 0.0 if alone else price)
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
        from volumetric.generate.drafting import Length

        live.length = Length()
    most = min(live.length.most(price), live.transcript.tokens_left - 1, room)
    live.guesses = live.drafter.propose(live.ids, most) if most > 0 else []
    return len(live.guesses)


def guessed_by(lives: Sequence[Live]) -> tuple[int, int]:
    """Return how many tokens were proposed so far, and how many of those were drawn, too."""
    return sum(live.transcript.drafted for live in lives), sum(live.transcript.accepted for live in lives)
