"""Difference between the predictions of two models with the same vocabulary on a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, SpecError
from volumetric.base.notebook_html import ShowsFields
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.graph.numeric.softmax import log_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from volumetric.generate.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison(ShowsFields):
    """Difference between two models' predictions of a text; `a` is the reference.

    Attributes
    ----------
    kl : mean of ``Σ p_a log(p_a / p_b)`` over the vocabulary, in nats
    kl_error : its standard error, as if the tokens were independent
    kl_max : largest KL of a token
    top1 : share of tokens for which both models have the same most likely token
    max_difference : largest difference of two logits, after the mean of each row is subtracted
    perplexity_a, perplexity_b : perplexities of the text
    tokens : number of predicted tokens
    """

    kl: float
    kl_error: float
    kl_max: float
    top1: float
    max_difference: float
    perplexity_a: float
    perplexity_b: float
    tokens: int


def compare_models(a: Model, b: Model, text: str | Sequence[int], *, window: int | None = None) -> ModelComparison:
    """Compare two models over a text.

    Parameters
    ----------
    a, b : the reference model, and the other; their logits must belong to the same tokens
    text : text, encoded by the tokenizer of `a`, or token ids
    window : tokens of a window, each fed from an empty sequence; None: the smaller context

    Raises
    ------
    GenerationError
        The vocabularies differ in size, there are fewer than two tokens, a model is an encoder, or logits are NaN.
    SpecError
        `window` is below 2 or more than a context.
    """
    if a.info.vocab_size != b.info.vocab_size:
        raise GenerationError(
            f"{a.name} has {a.info.vocab_size} tokens, but {b.name} has {b.info.vocab_size}",
            hint="compare models with the same vocabulary",
        )
    for model in (a, b):
        if model.bidirectional:
            raise GenerationError(f"{model.name} is an encoder and does not predict the next token")
    most = min(model.executable.options.context for model in (a, b))
    window = most if window is None else window
    if not 2 <= window <= most:
        raise SpecError(f"window must be 2 to {most}, the context of both, got {window}")
    ids = np.array(a.encode(text), np.int32)
    if ids.size < 2:
        raise GenerationError(f"a comparison needs 2 tokens or more, got {ids.size}")
    parts = [_window(a, b, ids[at : at + window]) for at in range(0, ids.size - 1, window)]
    kl, same, widest, *losses = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not np.isfinite(kl).all():
        raise GenerationError("logits of one of the models are NaN or infinite", hint="check its weights for NaN")
    return ModelComparison(
        kl=float(kl.mean()),
        kl_error=float(kl.std(ddof=1)) / math.sqrt(kl.size) if kl.size > 1 else math.nan,
        kl_max=float(kl.max()),
        top1=float(same.mean()),
        max_difference=float(widest.max()),
        perplexity_a=math.exp(losses[0].mean()),
        perplexity_b=math.exp(losses[1].mean()),
        tokens=kl.size,
    )


def _window(a: Model, b: Model, ids: np.ndarray) -> tuple[F32Array, ...]:
    """For each token of a window but the first: KL, agreement, largest difference of logits, both losses."""
    states = [model.executable.new_state() for model in (a, b)]
    parts: list[tuple[F32Array, ...]] = [(np.zeros(0, np.float32),) * 5]
    for at in range(0, ids.size - 1, PREFILL_ROWS):
        fed = ids[at : min(at + PREFILL_ROWS, ids.size - 1)]
        sides = zip((a, b), states, strict=True)
        p, q = (model.executable.forward(state, fed, last_only=False) for model, state in sides)
        following = ids[at + 1 : at + 1 + fed.size]
        parts.append(_rows(p, q, following))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _rows(p: F32Array, q: F32Array, following: np.ndarray) -> tuple[F32Array, ...]:
    """The same values for rows of logits ``[rows, V]``."""
    same = (p.argmax(-1) == q.argmax(-1)).astype(np.float32)
    widest = np.abs((p - p.mean(-1, keepdims=True)) - (q - q.mean(-1, keepdims=True))).max(-1)
    p, q = (log_softmax(x) for x in (p, q))
    losses = [-np.take_along_axis(x, following[:, None], -1)[:, 0] for x in (p, q)]
    q -= p
    kl = -np.einsum("rv,rv->r", np.exp(p), q)
    return kl, same, widest, *losses
