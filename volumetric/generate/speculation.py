"""Speculative decoding: draws of one generation, several of which may come out of one call of the device."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from volumetric._typing import F32Array
from volumetric.generate.drafting import Drafter, Length
from volumetric.generate.sampler import Draw
from volumetric.generate.transcript import Transcript
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.generate.session import Session


def drafted(session: Session, made: Transcript, drafter: Drafter, logits: F32Array) -> Generator[Draw, None, None]:
    """Yield draws without end: a call has the last token and those that `drafter` proposes behind it.

    When it is closed, the session holds the tokens before the one drawn last, as without a draft.

    Parameters
    ----------
    session : holds the prompt
    made : the generation that takes the draws; its counts of proposed and accepted tokens are written
    logits : after the prompt, float32 ``[V]``
    """
    ids, length = list(made.prompt), Length()
    draw = _draw(made, logits)
    ids.append(draw.token)
    yield draw
    while True:
        # The last token that may be drawn needs no guess behind it.
        guesses = drafter.propose(ids, min(length.most(), made.tokens_left - 1)) if made.tokens_left > 1 else []
        rows = session.ahead([ids[-1], *guesses])
        held, taken = len(ids), 0
        made.drafted += len(guesses)
        try:
            for row, guess in zip(rows, [*guesses, None], strict=True):
                draw = _draw(made, row)
                ids.append(draw.token)
                right = draw.token == guess
                made.accepted += right
                yield draw
                if not right:
                    break
                taken += 1
        finally:
            session.back(held + taken)
        length.count(len(guesses), taken)


def _draw(made: Transcript, logits: F32Array) -> Draw:
    if made.params.plain_greedy:
        return Draw(token=most_likely(logits))
    return made.sampler.draw(logits)
