"""Draft tokens in a batch: drafters propose tokens for a call if that is likely to save more time than it costs.

Additional rows are cheap in a call with one sequence, which reads all weights anyway, and expensive with many. So the
cost of a proposed token is measured (`DraftCosts`), and each sequence proposes only tokens whose acceptance is likely
enough (`DraftLength`). The drawn tokens do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from volumetric.generate.scheduling.prefill_budget import DraftCosts

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.drafters import Draft, Drafter
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence

MOST_ROWS = 256
"""Most draft tokens in a call, over all sequences."""


class Speculation:
    """Proposes tokens for the sequences of a scheduler.

    Parameters
    ----------
    model : the model, which checks the tokens
    draft : source of drafts for jobs without their own
    prices : costs of draft tokens

    Raises
    ------
    SpecError, GenerationError : see `volumetric.generate.drafters.drafters`
    """

    def __init__(self, model: CompiledModel, draft: Draft | None, prices: DraftCosts) -> None:
        self._make: Callable[[], Drafter] | None = None
        self._prices = prices
        if draft is not None:
            from volumetric.generate.drafters import drafters  # only needed for drafts

            self._make = drafters(model, draft)

    def guess(self, sequences: Sequence[GenerationSequence], fits: Callable[[], bool]) -> None:
        """Propose tokens for decoding sequences.

        Parameters
        ----------
        fits : returns whether there is memory for the proposed tokens; if not, they are dropped
        """
        price, room = self._prices.of(len(sequences)), MOST_ROWS
        for sequence in sequences:
            alone = sequence.ticket.job.session_state is not None  # without a price: the sequence runs alone
            room -= propose(sequence, sequence.ticket.job.drafter or self._make, room, 0.0 if alone else price)
        if room < MOST_ROWS and not fits():
            for sequence in sequences:
                sequence.guesses = []


def propose(
    sequence: GenerationSequence, make: Callable[[], Drafter] | None, room: int = MOST_ROWS, price: float = 0.0
) -> int:
    """Let a drafter propose the next tokens of a sequence, and return their number.

    Parameters
    ----------
    make : creates the drafter, if the sequence has none yet; None: nothing is proposed
    room : most tokens
    price : see `DraftLength.most`
    """
    if sequence.drafter is None and make is not None:
        sequence.drafter = make()
    if sequence.drafter is None:
        return 0
    if sequence.length is None:
        from volumetric.generate.drafters import DraftLength

        sequence.length = DraftLength()
    most = min(sequence.length.most(price), sequence.transcript.tokens_left - 1, room)
    sequence.guesses = sequence.drafter.propose(sequence.ids, most) if most > 0 else []
    return len(sequence.guesses)


def guessed_by(sequences: Sequence[GenerationSequence]) -> tuple[int, int]:
    """Return the numbers of proposed and of accepted tokens so far."""
    return sum(sequence.transcript.drafted for sequence in sequences), sum(
        sequence.transcript.accepted for sequence in sequences
    )
