"""Drafting: cheap guesses at the next tokens, which the model then checks together in one call.

Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192) with guesses that are certain of themselves: each drafter
names one token for each place. The model's own sampler draws at every place as it would have without a draft, from its
own logits and its own random numbers, and goes on behind a guess that is what it drew. What rejection sampling
promises, that the distribution is the model's, holds because nothing but the model's draws is ever kept; and a seed
gives the same text with a draft as without one wherever rows of a call have the bits that they have alone, as on the
CPU. A guess is kept as often as rejection would keep it: with the probability that the model gives to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from volumetric.base.errors import SpecError

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel

_SIZES = (3, 2)
_FIRST, _MOST = 4, 16
"""Tokens of a first draft, and of any: two more after one that was right to its end, one less after another."""
_LIKELY, _KEPT, _FORGOTTEN = 0.7, 0.9, 0.01
"""Share of right guesses that is thought of at first, weight of it after a guess, and how much of it comes back."""

Draft: TypeAlias = "Drafter | MakesDrafters | Literal['lookup']"
"""What proposes tokens: a model, ``"lookup"``, or something of one's own."""


class Drafter(Protocol):
    """Proposes tokens of one generation, at whose end it is closed."""

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow `ids`; in a generation, these grow from call to call."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class MakesDrafters(Protocol):
    """What has drafters for the generations of a model, as a smaller `Model` does."""

    def drafters_for(self, model: CompiledModel) -> Callable[[], Drafter]:
        """Return what makes one for each generation."""
        ...


class PromptLookup:
    """Proposes what followed the last three tokens, or two, where they occurred last before (prompt lookup decoding).

    Good where an answer quotes its prompt: summaries, edits, code. It costs a look into a table.

    Parameters
    ----------
    predicted : token ids of a text that the answer is expected to be much like, if there is one. What follows in it is
        proposed behind a single token, too, where nothing longer was seen
    """

    def __init__(self, predicted: Sequence[int] = ()) -> None:
        self._predicted = tuple(predicted)
        self._seen = 0
        self._places: dict[tuple[int, ...], int] = {}
        """What was seen → where it ends; in the prediction these are numbers below 0, counted from its end."""
        count = len(self._predicted)
        for end in range(count - 1, 0, -1):  # of a single token, the first place counts
            self._places[self._predicted[end - 1 : end]] = end - count
        for end in range(count):
            for size in _SIZES:
                if end >= size:
                    self._places[tuple(self._predicted[end - size : end])] = end - count

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return what followed; nothing where the last two tokens are new together."""
        for end in range(self._seen, len(ids)):  # what ends before the last token
            for size in _SIZES:
                if end >= size:
                    self._places[tuple(ids[end - size : end])] = end
        self._seen = max(self._seen, len(ids))
        for size in (*_SIZES, 1):
            place = self._places.get(tuple(ids[len(ids) - size :])) if len(ids) >= size else None
            if place is not None:
                return list(ids[place : place + most] if place >= 0 else self._predicted[place:][:most])
        return []

    def close(self) -> None:
        """Forget what was seen."""
        self._seen = 0
        self._places.clear()


def drafters(model: CompiledModel, draft: Draft) -> Callable[[], Drafter]:
    """Return what makes one that proposes tokens for `model`, for each generation.

    Raises
    ------
    SpecError : `draft` is nothing that could
    GenerationError : the smaller model has other tokens
    """
    if isinstance(draft, str):
        if draft != "lookup":
            raise SpecError(f"draft must be a model or 'lookup', got {draft!r}")
        return PromptLookup
    if hasattr(draft, "propose"):
        return lambda: draft  # pyright: ignore[reportReturnType]  (no model has it)
    if not hasattr(draft, "drafters_for"):
        raise SpecError(f"draft must be a model or 'lookup', got {type(draft).__name__}")
    return draft.drafters_for(model)  # pyright: ignore[reportAttributeAccessIssue]  (what proposes was handed back above)


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
