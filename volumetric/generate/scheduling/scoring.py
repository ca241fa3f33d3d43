"""How likely given tokens are, and which others are likelier, by the logits before each."""

from __future__ import annotations

import numpy as np

from volumetric._typing import F32Array
from volumetric.generate.events import TopLogprobs
from volumetric.graph.numeric.softmax import log_likelihoods, log_softmax
from volumetric.runtime.logits import likeliest


def scores(logits: F32Array, tokens: np.ndarray, tops: int) -> tuple[list[float], list[TopLogprobs]]:
    """Return ``log softmax(logits)[token]`` of each row, and its `tops` likeliest tokens with theirs, likeliest first.

    Parameters
    ----------
    logits : ``[T, V]``, overwritten
    tokens : ids, ``[T]``
    tops : how many others; 0: there is nothing to tell of a row, and less to compute
    """
    if not tops:
        return log_likelihoods(logits, tokens).tolist(), [()] * len(tokens)
    logs = log_softmax(logits)
    found = np.take_along_axis(logs, tokens[:, None], -1)[:, 0]
    best = [likeliest(row, tops) for row in logs]
    return found.tolist(), [
        tuple(zip(ids.tolist(), row[ids].tolist(), strict=True)) for ids, row in zip(best, logs, strict=True)
    ]
