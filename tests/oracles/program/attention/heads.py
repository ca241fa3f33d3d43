"""In NumPy: attention by heads in NumPy: what rules with queries, keys, values and weights share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.oracles.base import Arrays
from tests.oracles.dense import affine
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax
from volumetric.program.layer.attention.head_ops import SHORTEST


def apart(x: Array, heads: int) -> Array:
    """``[B, N, d]`` as ``[B, heads, N, d / heads]``."""
    batch, count, d = x.shape
    return x.reshape(batch, count, heads, d // heads).swapaxes(1, 2)


def together(x: Array) -> Array:
    """``[B, heads, N, e]`` as ``[B, N, heads · e]``."""
    batch, heads, count, e = x.shape
    return x.swapaxes(1, 2).reshape(batch, count, heads * e)


def scores(p: Arrays, heads: int, queries: Array, keys: Array, prefix: str = "") -> Array:
    """``q · k / √e``, ``[B, heads, N, M]``."""
    q, k = (apart(affine(p, prefix + n, x), heads) for n, x in (("q.", queries), ("k.", keys)))
    return q @ k.swapaxes(2, 3) * q.dtype.type(q.shape[-1] ** -0.5)


def read(p: Arrays, weights: Array, values: Array, prefix: str = "") -> Array:
    """``W_o (weights · v) + b_o``; nothing where all weights of a query are nothing by right is the rule's to tell."""
    v = apart(affine(p, prefix + "v.", values), weights.shape[1])
    return affine(p, prefix + "o.", together(weights @ v))


def direction(x: Array) -> Array:
    """Vectors of the last axis at length 1; those shorter than 1e-12 are shorter."""
    return x / np.sqrt(np.maximum(np.square(x).sum(-1, keepdims=True), x.dtype.type(SHORTEST)))


def only(y: Array, seen: Array | None) -> Array:
    """Zeros for queries that see no key."""
    return y if seen is None else np.where(np.asarray(np.any(seen, axis=1))[:, None], y, y.dtype.type(0))


def hidden(logits: Array, seen: Array | None) -> Array:
    """Logits with -inf for what is not seen."""
    return logits if seen is None else np.where(seen, logits, logits.dtype.type(-np.inf))


def cross(
    p: Arrays,
    heads: int,
    queries: Array,
    keys: Array,
    values: Array,
    seen: Array | None = None,
    prefix: str = "",
    keep: Callable[[Array], Array] | None = None,
) -> Array:
    """``W_o (softmax(q · k / √e) v) + b_o`` by heads, over logits that `keep` may change first."""
    logits = hidden(scores(p, heads, queries, keys, prefix), seen)
    return only(read(p, softmax(logits if keep is None else keep(logits)), values, prefix), seen)
