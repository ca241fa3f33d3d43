"""The arg max of logits, and the errors for logits that are not finite.

A model whose weights or dtype overflow must not continue with a meaningless token, whether the sampler, a device loop
or a batch takes the arg max.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError

MODEL_LOGITS = "the model's logits"
NAN, INFINITE, NONE_POSSIBLE = "hold NaN", "hold +inf", "are all -inf, so no token is possible"


def unusable_logits_error(state: str, what: str = MODEL_LOGITS, *, sequence: int | None = None) -> GenerationError:
    """Return the error for logits in one of three states that allow no choice.

    Parameters
    ----------
    state : `NAN`, `INFINITE` or `NONE_POSSIBLE`
    what : the logits, as the start of the message
    sequence : index of their sequence in the batch
    """
    error = GenerationError(
        f"{what} {state}",
        hint="bans (-inf) may cover every token; otherwise the weights or the dtype overflow: "
        "try dtype='float32' or device='reference'",
    )
    error.sequence = sequence
    return error


def argmax_token(logits: F32Array, *, sequence: int | None = None) -> int:
    """Return the index of the largest of `logits`, the lowest index among equals.

    Parameters
    ----------
    logits : float32, one row
    sequence : index of their sequence in the batch

    Raises
    ------
    GenerationError : the largest is NaN or infinite
    """
    token = int(logits.argmax())  # NaN wins over every number
    check_argmax_count(logits.item(token), sequence=sequence)
    return token


def top_k_indices(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the indices of the `k` largest of `scores`, ascending; the lowest indices among equals."""
    if k >= scores.size:
        return np.arange(scores.size)
    least = np.partition(scores, scores.size - k)[scores.size - k]
    above = np.flatnonzero(scores > least)
    equal = np.flatnonzero(scores == least)[: k - above.size]
    return np.sort(np.concatenate((above, equal)))


def argmax_tokens(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the indices of the `k` largest of `scores`, largest first; the lowest index first among equals."""
    ids = top_k_indices(scores, k)
    return ids[np.argsort(-scores[ids], kind="stable")]


def check_argmax_count(top: float, *, sequence: int | None = None) -> None:
    """Raise `GenerationError` unless `top`, the largest logit or a NaN, is finite."""
    if not math.isfinite(top):
        state = NAN if math.isnan(top) else INFINITE if top > 0 else NONE_POSSIBLE
        raise unusable_logits_error(state, sequence=sequence)
