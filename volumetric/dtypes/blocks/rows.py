"""Rows of numbers to fields of blocks: the last block of a row is filled up, and columns that matter count more."""

from __future__ import annotations

import numpy as np

from volumetric._typing import F32Array
from volumetric.dtypes.blocks.format import BlockFormat, Fields


def fit_rows(blocks: BlockFormat, x: F32Array, importance: F32Array | None) -> Fields:
    """Return scales and codes of the blocks of rows, see `BlockFormat.fit`.

    Parameters
    ----------
    x : ``[rows, k]``; numbers beyond the end of a row are zeros that do not count
    importance : how much the squared error of each column counts, ``[k]``, or None
    """
    rows, k = x.shape
    padded = np.zeros((rows, blocks.blocks(k) * blocks.size), np.float32)
    padded[:, :k] = x
    padded = padded.reshape(-1, blocks.size)
    if importance is None:
        return blocks.fit(padded, None)
    counts = np.zeros((rows, padded.size // max(rows, 1)), np.float32)
    counts[:, :k] = importance
    counts = counts.reshape(padded.shape)
    # As in ggml: numbers that are large in their block keep weight where activations say little.
    counts *= np.sqrt(np.square(padded).mean(axis=1, keepdims=True) + np.square(padded))
    return blocks.fit(padded, counts)
