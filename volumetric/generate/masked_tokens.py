"""Masked tokens: the predictions of a masked language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base.errors import GenerationError, SpecError
from volumetric.graph.numeric.softmax import softmax
from volumetric.network import INPUT

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.text_encoder import TextEncoder
    from volumetric.loaders.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledMask:
    """A token for a masked place.

    Attributes
    ----------
    token, id : the token in the vocabulary
    probability : probability of the token at this position
    text : the whole text with the token; other masks are unchanged
    """

    token: str
    id: int
    probability: float
    text: str


def fill_mask(model: CompiledModel, encoder: TextEncoder, text: str, top_k: int) -> list[list[FilledMask]]:
    """See `EncoderMethods.fill_mask`; `encoder` belongs to the model."""
    if not model.bidirectional or encoder.loaded.hidden is None:
        raise GenerationError(
            f"{model.name} has no head that predicts masked tokens", hint="use a checkpoint of …ForMaskedLM"
        )
    if not isinstance(text, str):
        raise GenerationError(f"fill_mask requires a text, got {type(text).__name__}")
    if type(top_k) is not int or top_k < 1:
        raise SpecError(f"top_k must be at least 1, got {top_k!r}")
    tokenizer = encoder.tokenizer
    mask = tokenizer.special_tokens.get("mask_token")
    number = tokenizer.token_id(mask)
    if mask is None or number is None:
        raise GenerationError(f"the tokenizer of {model.name} has no mask token")
    [rows] = encoder.tokens([text], encoder.options.context + 1)
    ids = rows[INPUT]
    model.room_after(len(ids))
    places = np.flatnonzero(ids == number)
    if not places.size:
        raise GenerationError(f"the text has no {mask}", hint=f"write {mask} in place of a word")
    state = model.executable.new_state()
    logits = model.executable.forward(state, rows, last_only=False)
    predictions: list[list[FilledMask]] = []
    for place in places:
        chances = softmax(logits[place])
        best = np.argsort(-chances, kind="stable")[:top_k]
        predictions.append([_fill_place(tokenizer, ids, int(place), int(id), float(chances[id])) for id in best])
    return predictions


def _fill_place(tokenizer: Tokenizer, ids: np.ndarray, place: int, id: int, probability: float) -> FilledMask:
    whole = ids.copy()
    whole[place] = id
    mask = tokenizer.token_id(tokenizer.special_tokens.get("mask_token"))
    # Keep other masks, which are special tokens, but not the special tokens that the tokenizer added.
    around = {tokenizer.token_id(tokenizer.special_tokens.get(role)) for role in ("cls_token", "sep_token")}
    around |= {tokenizer.bos_id, tokenizer.eos_id} - {None, mask}
    text_ids = [int(one) for one in whole if int(one) not in around]
    text = tokenizer.decode(text_ids, skip_special_tokens=False).strip()
    return FilledMask(token=tokenizer.token(id) or "", id=id, probability=probability, text=text)
