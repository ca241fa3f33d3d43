"""The sampler in NumPy, to which `volumetric.generate.sampler` is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from volumetric.base import rng
from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import Draw
from volumetric.run.logits import (
    INFINITE,
    MODEL_LOGITS,
    NAN,
    NONE_POSSIBLE,
    argmax_tokens,
    top_k_indices,
    unusable_logits_error,
)

# A top-p set seldom needs more tokens than this, and finding them is ten times cheaper than sorting a vocabulary.
_TOP_P_FIRST = 1024


class ReferenceSampler:
    """Draws the tokens of one generation; everything is as `volumetric.generate.sampler.Sampler` has it."""

    def __init__(self, params: SamplingParams, prompt: Iterable[int] = ()) -> None:
        self.params = params
        self.seed = rng.fresh_seed() if params.seed is None else int(params.seed)
        self._random = rng.generator(self.seed)
        window = params.repetition_window
        self._recent: deque[int] = deque(prompt, maxlen=None if window < 0 else window)
        self._generated: dict[int, int] = {}

    def draw(self, logits: F32Array) -> Draw:
        """Draw the next token.

        Parameters
        ----------
        logits : float32 ``[V]``; left unchanged

        Raises
        ------
        GenerationError : the logits hold NaN or +inf, or no token is possible
        """
        require_usable(logits)
        scores = self._adjust(logits)
        token = int(np.argmax(scores)) if self.params.temperature == 0.0 else self._choose(scores)
        if self.params.penalised:
            self._observe(token)
        if self.params.logprobs is None:
            return Draw(token=token)
        logprob, top = log_probabilities(logits, token, self.params.logprobs)
        return Draw(token=token, logprob=logprob, top_logprobs=top)

    def _observe(self, token: int) -> None:
        self._recent.append(token)
        self._generated[token] = self._generated.get(token, 0) + 1

    def _adjust(self, logits: F32Array) -> F32Array:
        """Apply bias and penalties; `logits` itself where neither is asked for."""
        params = self.params
        if not params.logit_bias and not params.penalised:
            return logits
        scores = logits.copy()
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias, np.int64)
            if ids.max() >= scores.size:
                raise GenerationError(
                    f"logit_bias names token {ids.max()}, but the model has {scores.size} tokens",
                    hint="token ids are specific to a model's vocabulary",
                )
            scores[ids] += np.fromiter(params.logit_bias.values(), np.float32)
        if params.repetition_penalty != 1.0 and self._recent:
            penalise_repetition(scores, np.unique(np.fromiter(self._recent, np.int64)), params.repetition_penalty)
        if self._generated:
            ids = np.fromiter(self._generated, np.int64)
            counts = np.fromiter(self._generated.values(), np.float32)
            scores[ids] -= counts * params.frequency_penalty + params.presence_penalty
        require_usable(scores, "after logit bias and penalties, the logits")
        return scores

    def _choose(self, scores: F32Array) -> int:
        params = self.params
        ids = top_k_indices(scores, params.top_k) if 0 < params.top_k < scores.size else None
        kept = scores if ids is None else scores[ids]
        # The largest score is taken off before the division, so that a tiny temperature cannot overflow.
        weights = np.exp((kept - kept.max()).astype(np.float64) / params.temperature)
        keep = np.ones(weights.size, bool)
        if params.top_p < 1.0:
            keep &= top_p_mask(weights, params.top_p)
        if params.min_p > 0.0:
            keep &= weights >= params.min_p * weights.max()
        total = np.cumsum(np.where(keep, weights, 0.0))
        # side="right" never lands on a token of weight zero: u < 1 and its slice of the line is empty.
        chosen = int(np.searchsorted(total, self._random.random() * total[-1], side="right"))
        return chosen if ids is None else int(ids[chosen])


def require_usable(logits: F32Array, what: str = MODEL_LOGITS) -> None:
    """Raise `GenerationError` unless the largest of `logits` is a finite number: none is NaN or +inf, not all are -inf.

    Parameters
    ----------
    logits : float32, of one row
    what : which logits, as the beginning of the message
    """
    top = float(logits.max(initial=-np.inf))
    if not np.isfinite(top):
        raise unusable_logits_error(NAN if np.isnan(top) else INFINITE if top > 0 else NONE_POSSIBLE, what)


def penalise_repetition(scores: F32Array, ids: NDArray[np.int64], penalty: float) -> None:
    """Divide positive and multiply negative `scores` of `ids` by `penalty`, in place (CTRL, arXiv:1909.05858)."""
    seen = scores[ids]
    scores[ids] = np.where(seen > 0, seen / np.float32(penalty), seen * np.float32(penalty))


def top_p_mask(weights: NDArray[np.float64], top_p: float) -> NDArray[np.bool_]:
    """Mark the fewest elements, largest first, whose sum reaches `top_p` of the whole; at least one."""
    goal = top_p * weights.sum()
    ids = top_k_indices(weights, _TOP_P_FIRST)
    if weights[ids].sum() < goal:
        ids = np.arange(weights.size)
    order = ids[np.argsort(-weights[ids], kind="stable")]
    count = int(np.searchsorted(np.cumsum(weights[order]), goal)) + 1
    keep = np.zeros(weights.size, bool)
    keep[order[:count]] = True
    return keep


def log_probabilities(logits: F32Array, token: int, count: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Return ``log softmax(logits)`` of `token`, and of the `count` most likely tokens, most likely first."""
    top = logits.max()
    norm = float(top) + float(np.log(np.exp(logits - top, dtype=np.float64).sum()))
    best = argmax_tokens(logits, count) if count else ()
    return float(logits[token]) - norm, tuple((int(i), float(logits[i]) - norm) for i in best)
