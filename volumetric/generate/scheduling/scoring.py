"""How likely given tokens are, by the logits before each."""

from __future__ import annotations

import numpy as np

from volumetric._typing import F32Array


def log_likelihoods(logits: F32Array, tokens: np.ndarray) -> F32Array:
    """Return ``log softmax(logits)[token]`` of each row, float32 ``[T]``; `logits` ``[T, V]`` are overwritten."""
    logits -= logits.max(-1, keepdims=True)
    picked = np.take_along_axis(logits, tokens[:, None], -1)[:, 0]
    return picked - np.log(np.exp(logits, out=logits).sum(-1))
