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
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from volumetric.errors import GenerationError, SpecError

if TYPE_CHECKING:
    from volumetric.generate.model import Model

FIRST, MOST = 4, 16
"""Tokens of a first draft, and of any: two more after one that was right to its end, one less after another."""
_SIZES = (3, 2)
_LIKELY, _KEPT, _FORGOTTEN = 0.7, 0.9, 0.01
"""Share of right guesses that is thought of at first, weight of it after a guess, and how much of it comes back."""
_SAMPLE = "Speculation: 3.14 is not π; “naïve” drafts cost 27% more.\n\tdef f(x): return x"

Draft: TypeAlias = "Drafter | Model | Literal['lookup'] | None"
"""What proposes tokens: a model, ``"lookup"``, or something of one's own."""


class Drafter(Protocol):
    """Proposes tokens of one generation, at whose end it is closed."""

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow `ids`; in a generation, these grow from call to call."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class Length:
    """How many tokens to propose in a generation, by how many of those before were right.

    The first draft has 4 tokens; two more are tried after one that was right to its end, up to 16, and one less after
    another. Where guesses have a price, as beside other sequences, only those are made that are likely enough to be
    worth it, by the share of guesses that were right of late.
    """

    def __init__(self) -> None:
        self._most = FIRST
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
        return min(self._most, int(math.log(price) / math.log(self._share)) if self._share < 1.0 else MOST)

    def count(self, proposed: int, right: int) -> None:
        """Take notice of a draft: of so many tokens, the first ones were right."""
        if not proposed:
            return
        self._most = min(MOST, self._most + 2) if right == proposed else max(1, self._most - 1)
        judged = right + (right < proposed)
        self._share += (1.0 - _KEPT**judged) * (right / judged - self._share)


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


class DraftModel:
    """Proposes what a smaller model of the same tokens finds most likely.

    Parameters
    ----------
    model : the smaller one; it may be shared
    """

    def __init__(self, model: Model) -> None:
        self._context = model.executable.options.context
        self._session = model.session()

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return the most likely tokens; nothing where they would exceed the smaller model's context."""
        from volumetric.runtime.logits import most_likely

        most = min(most, self._context - len(ids) + 1)
        if most < 1:
            return []
        logits, _ = self._session.prefill(ids)
        found = [most_likely(logits)]
        if most > 1:
            greedy = self._session.greedy(found[0])
            found += islice(greedy, most - 1)
            greedy.close()
        return found

    def close(self) -> None:
        """Give the state back."""
        self._session.close()


def drafter_for(model: Model, draft: Draft) -> Drafter | None:
    """Return what proposes tokens for `model`.

    Raises
    ------
    SpecError : `draft` is nothing that could
    GenerationError : the smaller model has other tokens
    """
    if draft is None:
        return None
    if isinstance(draft, str):
        if draft != "lookup":
            raise SpecError(f"draft must be a model or 'lookup', got {draft!r}")
        return PromptLookup()
    if hasattr(draft, "propose"):
        return draft  # pyright: ignore[reportReturnType]  (no model has it)
    from volumetric.generate.model import Model

    if not isinstance(draft, Model):
        raise SpecError(f"draft must be a model or 'lookup', got {type(draft).__name__}")
    check_tokens_agree(model, draft)
    return DraftModel(draft)


def check_tokens_agree(model: Model, draft: Model) -> None:
    """Raise `GenerationError` unless the tokens of `draft` mean what those of `model` mean."""
    hint = "a draft model is a smaller one of the same family, with the same tokenizer"
    ours, theirs = model.info.vocab_size, draft.info.vocab_size
    mine, other = model.tokenizer, draft.tokenizer
    if mine is not None and other is not None:
        if mine.encode(_SAMPLE) != other.encode(_SAMPLE):
            raise GenerationError(f"{draft.name} cuts text into other tokens than {model.name}", hint=hint)
        # The ends of tables may be filled up differently; of tokens, there are as many.
        ours, theirs = mine.vocab_size, other.vocab_size
    if ours != theirs:
        raise GenerationError(f"{draft.name} has {theirs} tokens, {model.name} has {ours}", hint=hint)
