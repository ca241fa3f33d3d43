"""A smaller model as the draft model, which proposes its most likely tokens."""

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
    """Proposes the most likely tokens of a smaller model with the same tokenizer.

    Parameters
    ----------
    session : session of the smaller model, which may be shared
    context : context of the smaller model
    """

    def __init__(self, session: Session, context: int) -> None:
        self._context, self._session = context, session
        self._params = SamplingParams(temperature=0.0, ignore_eos=True)

    def propose(self, ids: Sequence[int], most: int) -> list[int]:
        """Return the most likely tokens; none if they would exceed the smaller model's context."""
        if len(ids) > self._context:
            return []
        return list(self._session.stream(ids, self._params, max_tokens=most).run().token_ids)

    def close(self) -> None:
        """Free the state."""
        self._session.close()


def check_tokens_agree(model: CompiledModel, draft: CompiledModel) -> None:
    """Raise `GenerationError` unless `draft` has the same tokens as `model`."""
    hint = "use a smaller model of the same family, with the same tokenizer"
    ours, theirs = model.info.vocab_size, draft.info.vocab_size
    mine, other = model.tokenizer, draft.tokenizer
    if mine is not None and other is not None:
        if mine.encode(_SAMPLE) != other.encode(_SAMPLE):
            raise GenerationError(f"{draft.name} tokenises text differently from {model.name}", hint=hint)
        # Embedding tables may be padded differently, but the numbers of tokens must be equal.
        ours, theirs = mine.vocab_size, other.vocab_size
    if ours != theirs:
        raise GenerationError(f"{draft.name} has {theirs} tokens, but {model.name} has {ours}", hint=hint)
