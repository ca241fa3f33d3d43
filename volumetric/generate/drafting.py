"""Drafting: cheap guesses at the next tokens, which the model then checks together in one call.

Speculative decoding (Leviathan et al. 2023, arXiv:2211.17192) with guesses that are certain of themselves: each drafter
names one token for each place. The model's own sampler draws at every place as it would have without a draft, from its
own logits and its own random numbers, and goes on behind a guess that is what it drew. What rejection sampling
promises, that the distribution is the model's, holds because nothing but the model's draws is ever kept; and a seed
gives the same text with a draft as without one wherever rows of a call have the bits that they have alone, as on the
CPU. A guess is kept as often as rejection would keep it: with the probability that the model gives to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from volumetric.errors import GenerationError, SpecError
from volumetric.generate.params import SamplingParams

if TYPE_CHECKING:
    from volumetric.generate.model import Model

_SIZES = (3, 2)
_SAMPLE = "Speculation: 3.14 is not π; “naïve” drafts cost 27% more.\n\tdef f(x): return x"

Draft: TypeAlias = "Drafter | Model | Literal['lookup']"
"""What proposes tokens: a model, ``"lookup"``, or something of one's own."""


class Drafter(Protocol):
    """Proposes tokens of one generation, at whose end it is closed."""

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow `ids`; in a generation, these grow from call to call."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
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


class DraftModel:
    """Proposes what a smaller model of the same tokens finds most likely.

    Parameters
    ----------
    model : the smaller one; it may be shared
    """

    def __init__(self, model: Model) -> None:
        self._context = model.executable.options.context
        self._session = model.session()
        self._params = SamplingParams(temperature=0.0, ignore_eos=True)

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return the most likely tokens; nothing where they would exceed the smaller model's context."""
        if len(ids) > self._context:
            return []
        return list(self._session.stream(ids, self._params, max_tokens=most).run().token_ids)

    def close(self) -> None:
        """Give the state back."""
        self._session.close()


def drafters(model: Model, draft: Draft) -> Callable[[], Drafter]:
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
    from volumetric.generate.model import Model

    if not isinstance(draft, Model):
        raise SpecError(f"draft must be a model or 'lookup', got {type(draft).__name__}")
    check_tokens_agree(model, draft)
    return lambda: DraftModel(draft)


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
