"""Drafting: cheap proposals of the next tokens, which the model then checks in one call.

This is speculative decoding (Leviathan et al. 2023, arXiv:2211.17192) with deterministic drafts: a drafter proposes one
token for each position. The model's sampler draws at every position as it would without a draft, from the model's
logits and its own random numbers, and continues after a proposal that equals its draw. Only the model's draws are kept,
so that the distribution is the model's, as with rejection sampling. A seed gives the same text with and without a draft
if rows have the same bits in any batch, as on the CPU. A proposal is accepted as often as by rejection sampling: with
the probability that the model assigns to it.
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
"""Tokens of the first draft, and of the longest: two more after a fully accepted draft, one less after another."""
_LIKELY, _KEPT, _FORGOTTEN = 0.7, 0.9, 0.01
"""Acceptance rate assumed at first, weight of the old rate after a proposal, and recovery of the rate."""

Draft: TypeAlias = "Drafter | DrafterFactory | Literal['lookup']"
"""Source of drafts: a model, ``"lookup"``, or a custom drafter."""


class Drafter(Protocol):
    """Proposes tokens for one generation; closed at its end."""

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow `ids`, which grow from call to call of a generation."""
        ...

    def close(self) -> None:
        """Free its resources."""
        ...


class DrafterFactory(Protocol):
    """A factory of drafters for a model, such as a smaller `Model`."""

    def drafters_for(self, model: CompiledModel) -> Callable[[], Drafter]:
        """Return a function that creates a drafter for each generation."""
        ...


class PromptLookup:
    """Proposes the tokens that followed the last occurrence of the last three, or two, tokens (prompt lookup decoding).

    It works well if an answer quotes its prompt: summaries, edits, code. It costs a table lookup.

    Parameters
    ----------
    predicted : token ids of a text that the answer is expected to resemble, if any. It is also searched for the last
        single token if no longer match exists
    """

    def __init__(self, predicted: Sequence[int] = ()) -> None:
        self._predicted = tuple(predicted)
        self._seen = 0
        self._places: dict[tuple[int, ...], int] = {}
        """N-gram → position of its end; positions in the prediction are negative, counted from its end."""
        count = len(self._predicted)
        for end in range(count - 1, 0, -1):  # for a single token, the first occurrence counts
            self._places[self._predicted[end - 1 : end]] = end - count
        for end in range(count):
            for size in _SIZES:
                if end >= size:
                    self._places[tuple(self._predicted[end - size : end])] = end - count

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return the tokens that followed the last match; none without a match."""
        for end in range(self._seen, len(ids)):  # n-grams that end before the last token
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
        """Clear the table."""
        self._seen = 0
        self._places.clear()


def drafters(model: CompiledModel, draft: Draft) -> Callable[[], Drafter]:
    """Return a function that creates a drafter for each generation of `model`.

    Raises
    ------
    SpecError : `draft` is not a source of drafts
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


class DraftLength:
    """Adapts the length of drafts of a generation to their acceptance.

    The first draft has 4 tokens; after a fully accepted one the next is two longer, up to 16, else one shorter. If
    proposals have a price, as in a batch with other sequences, only those are made whose expected benefit exceeds it,
    by the recent acceptance rate.
    """

    def __init__(self) -> None:
        self._most = _FIRST
        self._share = _LIKELY

    def most(self, price: float = 0.0) -> int:
        """Return the length of the next draft.

        Parameters
        ----------
        price : cost of a proposed token, as a share of the value of an accepted one
        """
        if price <= 0.0:
            return self._most
        if self._share <= price:
            self._share += _FORGOTTEN * (_LIKELY - self._share)  # retry from time to time
            return 0
        # The n-th token is accepted only if all earlier ones are.
        return min(self._most, int(math.log(price) / math.log(self._share)) if self._share < 1.0 else _MOST)

    def count(self, proposed: int, right: int) -> None:
        """Record a draft of `proposed` tokens, of which the first `right` were accepted."""
        if not proposed:
            return
        self._most = min(_MOST, self._most + 2) if right == proposed else max(1, self._most - 1)
        judged = right + (right < proposed)
        self._share += (1.0 - _KEPT**judged) * (right / judged - self._share)
