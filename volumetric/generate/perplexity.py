"""Perplexity: how well a model predicts a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.jobs import Job
from volumetric.generate.scheduling.limits import PREFILL_ROWS, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from volumetric.generate.compiled_model import CompiledModel

_TOGETHER = Limits.of_one_caller(slots=8, prompt_rows=PREFILL_ROWS, prefix_bytes=None)
"""Most rows of a call; short windows share calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """The perplexity of a text.

    Attributes
    ----------
    value : the perplexity, ``exp(mean)``
    mean : mean of ``−log p(token | earlier tokens of its window)``, in nats
    error : standard error of `mean`, as if the tokens were independent; NaN for a single token
    tokens : number of predicted tokens
    """

    value: float
    mean: float
    error: float
    tokens: int


def perplexity(model: CompiledModel, ids: Sequence[int], window: int | None, stride: int | None) -> Perplexity:
    """See `Model.perplexity`."""
    context = model.executable.options.context
    window = model.info.window if window is None else window
    if not 2 <= window <= context:
        raise SpecError(f"window must be 2 to {context}, the model's context, got {window}")
    stride = window if stride is None else stride
    if not 1 <= stride <= window:
        raise SpecError(f"stride must be 1 to {window}, the window, got {stride}")
    if model.bidirectional:
        raise GenerationError(
            f"{model.name} is an encoder and does not predict the next token", hint="use model.logits(ids)"
        )
    if len(ids) < 2:
        raise GenerationError(f"a perplexity needs 2 tokens or more, got {len(ids)}")
    windows = list(_windows(len(ids), window, stride))
    window_losses = _losses(model, [ids[start:end] for start, end, _ in windows])
    losses = np.concatenate([one[-new:] for one, (_, _, new) in zip(window_losses, windows, strict=True)])
    if not np.isfinite(losses).all():
        raise GenerationError("the model's logits are NaN or infinite", hint="check its weights for NaN and infinities")
    mean = float(losses.mean())
    error = float(losses.std(ddof=1)) / math.sqrt(losses.size) if losses.size > 1 else math.nan
    return Perplexity(value=math.exp(mean), mean=mean, error=error, tokens=losses.size)


def _windows(tokens: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Yield start and end of each window, and the number of its last tokens that no earlier window predicted."""
    predicted = 0
    for start in range(0, tokens, stride):
        end = min(start + window, tokens)
        new = end - max(predicted, start + 1)  # the first token of a window is not predicted
        if new > 0:
            yield start, end, new
        predicted = end
        if end == tokens:
            return


def _losses(model: CompiledModel, windows: Sequence[Sequence[int]]) -> Iterator[F32Array]:
    """Yield ``−log p`` of each token of a window but the first, window by window."""
    scheduler = Scheduler(model, _TOGETHER)
    params = SamplingParams(temperature=0.0, max_tokens=1)
    tickets = [scheduler.submit(Job(prompt=ids[:-1], params=params, targets=ids[1:])) for ids in windows]
    try:
        for ticket in tickets:
            while not ticket.ended:
                for event in scheduler.step():
                    if event.error is not None:
                        raise event.error
            yield -np.array(ticket.transcripts[0].likelihoods, np.float32)
    finally:
        scheduler.close()
