"""Perplexity: how well a model predicts a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, SpecError
from volumetric.generate.session import PREFILL_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from volumetric.generate.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """How well a text was predicted.

    Attributes
    ----------
    value : the perplexity, ``exp(mean)``
    mean : mean of ``−log p(token | tokens before it in its window)``, in nats
    error : standard error of `mean`, as if the tokens were independent; NaN for a single token
    tokens : tokens that were predicted
    """

    value: float
    mean: float
    error: float
    tokens: int


def perplexity(model: Model, ids: Sequence[int], window: int | None, stride: int | None) -> Perplexity:
    """See `Model.perplexity`."""
    context = model.executable.options.context
    window = context if window is None else window
    if not 2 <= window <= context:
        raise SpecError(f"window must be 2 to {context}, the model's context, got {window}")
    stride = window if stride is None else stride
    if not 1 <= stride <= window:
        raise SpecError(f"stride must be 1 to {window}, the window, got {stride}")
    if model.bidirectional:
        raise GenerationError(f"{model.name} is an encoder and predicts no next token", hint="use model.logits(ids)")
    if len(ids) < 2:
        raise GenerationError(f"a perplexity needs 2 tokens or more, got {len(ids)}")
    windows = _windows(len(ids), window, stride)
    losses = np.concatenate([_losses(model, ids[start:end])[-new:] for start, end, new in windows])
    if not np.isfinite(losses).all():
        raise GenerationError("the model's logits are not numbers", hint="check its weights for NaN and infinities")
    mean = float(losses.mean())
    error = float(losses.std(ddof=1)) / math.sqrt(losses.size) if losses.size > 1 else math.nan
    return Perplexity(value=math.exp(mean), mean=mean, error=error, tokens=losses.size)


def _windows(tokens: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of each window, and how many tokens at its end no window before it predicted."""
    seen = 0
    for start in range(0, tokens, stride):
        end = min(start + window, tokens)
        new = end - max(seen, start + 1)  # the first token of a window is given
        if new > 0:
            yield start, end, new
        seen = end
        if end == tokens:
            return


def _losses(model: Model, ids: Sequence[int]) -> F32Array:
    """``−log p`` of each token of a window but the first."""
    state = model.executable.new_state()
    tokens = np.array(ids, np.int32)
    found = [np.zeros(0, np.float32)]
    for at in range(0, tokens.size - 1, PREFILL_ROWS):
        fed = tokens[at : min(at + PREFILL_ROWS, tokens.size - 1)]
        logits = model.executable.forward(state, fed, last_only=False)
        logits -= logits.max(-1, keepdims=True)
        picked = np.take_along_axis(logits, tokens[at + 1 : at + 1 + fed.size, None], -1)[:, 0]
        found.append(np.log(np.exp(logits, out=logits).sum(-1)) - picked)
    return np.concatenate(found)
