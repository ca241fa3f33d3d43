"""One row for a text out of the rows of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric._typing import F32Array
from volumetric.loaders.sentence import Pooling


def pool(rows: F32Array, modes: Sequence[Pooling], skipped: int = 0) -> F32Array:
    """Return the hidden states ``[T, d]`` of a text as one row ``[d · modes]``, as sentence-transformers does.

    Parameters
    ----------
    modes : ``"cls"`` the first row; ``"lasttoken"`` the last one; ``"max"`` and ``"mean"`` of each column;
        ``"mean_sqrt_len_tokens"`` the sum over √T; ``"weightedmean"`` rows weighted by their place, 1 … T. Several
        stand side by side.
    skipped : rows of a prompt at the start that do not count
    """
    kept = rows[min(skipped, len(rows) - 1) :]
    parts = [_pool(kept, mode, len(rows) - len(kept)) for mode in modes]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _pool(rows: F32Array, mode: Pooling, before: int) -> F32Array:
    if mode == "cls":
        return rows[0]
    if mode == "lasttoken":
        return rows[-1]
    if mode == "max":
        return rows.max(0)
    if mode == "weightedmean":
        weights = np.arange(before + 1, before + 1 + len(rows), dtype=np.float32)
        return weights @ rows / weights.sum()
    # A product with ones adds several rows at a time; `sum(0)` adds them one by one and takes thrice as long.
    total = np.ones(len(rows), np.float32) @ rows
    return total / np.float32(len(rows) if mode == "mean" else np.sqrt(len(rows)))


def scaled_to_one(rows: F32Array) -> F32Array:
    """Return rows of length 1; those of length 0 stay, as with torch's `normalize`."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), np.float32(1e-12))
