"""A smaller model as a draft: it proposes what it finds most likely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volumetric.base.errors import GenerationError
from volumetric.generate.params import SamplingParams

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.session import Session

_SAMPLE = "Speculation: 3.14 is not π; “naïve” drafts cost 27% more.\n\tdef f(x): return x"


class DraftModel:
    """Proposes what a smaller model of the same tokens finds most likely.

    Parameters
    ----------
    session : of the smaller model, which may be shared
    context : of the smaller model
    """

    def __init__(self, session: Session, context: int) -> None:
        self._context, self._session = context, session
        self._params = SamplingParams(temperature=0.0, ignore_eos=True)

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return the most likely tokens; nothing where they would exceed the smaller model's context."""
        if len(ids) > self._context:
            return []
        return list(self._session.stream(ids, self._params, max_tokens=most).run().token_ids)

    def close(self) -> None:
        """Give the state back."""
        self._session.close()


def check_tokens_agree(model: CompiledModel, draft: CompiledModel) -> None:
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
