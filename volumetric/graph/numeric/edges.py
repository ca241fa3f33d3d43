"""Attention of nodes over those that they read: what it is in NumPy, and its gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from volumetric._typing import Array


class Edges(NamedTuple):
    """Edges by receiver, and the way back to their senders.

    Attributes
    ----------
    starts : first edge of each receiver, and the end, ``[R + 1]``
    senders, receivers : of each edge, ``[E]``
    out_starts : first place of each sender in `out_edges`, and the end, ``[S + 1]``
    out_edges : numbers of edges by sender, in rising order for each, ``[E]``
    """

    starts: Array
    senders: Array
    receivers: Array
    out_starts: Array
    out_edges: Array


def edges_of(starts: Array, senders: Array, count: int) -> Edges:
    """Return edges with the way back, all int32; `count` is the number of senders."""
    receivers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    out_edges = np.argsort(senders, kind="stable")
    out_starts = np.searchsorted(np.asarray(senders)[out_edges], np.arange(count + 1))
    found = starts, senders, receivers, out_starts, out_edges
    return Edges(*(np.ascontiguousarray(array, np.int32) for array in found))


def edge_attend(q: Array, kv: Array, bias: Array, edges: Edges, heads: int) -> tuple[Array, Array]:
    """``m[r] = Σ α v[sender]`` with α the softmax over a receiver's edges of ``q[r]·k[sender] / √d + bias``.

    An edge whose bias is -inf does not count; a receiver without edges gets zeros.

    Parameters
    ----------
    q : ``[R, B or 1, heads · d]``
    kv : ``[S, B, heads · (d + e)]``, the keys of all heads before their values
    bias : ``[E, heads or 1]``

    Returns
    -------
    m ``[R, B, heads · e]``, and α ``[E, B, heads]``
    """
    queries, keys, values = _apart(q, kv, heads)
    with np.errstate(invalid="ignore", over="ignore"):  # what is odd in one stream stays in it
        logits = np.einsum("ebhd,ebhd->ebh", queries[edges.receivers], keys[edges.senders])
        logits = logits / np.sqrt(queries.shape[-1]).astype(q.dtype) + bias[:, None]
        top = _by_receiver(np.maximum, logits, edges, -np.inf)
        weights = np.exp(logits - np.where(top == -np.inf, 0, top)[edges.receivers])
        total = _by_receiver(np.add, weights, edges, 0)
        weights = (weights / np.where(total == 0, 1, total)[edges.receivers]).astype(q.dtype)
        message = _by_receiver(np.add, weights[..., None] * values[edges.senders], edges, 0)
    return _joined(message), weights


def edge_attend_back(
    g: Array, weights: Array, q: Array, kv: Array, edges: Edges, heads: int
) -> tuple[Array, Array, Array]:
    """Return the gradients of the logits ``[E, B, heads]``, of q and of kv, from that of m."""
    queries, keys, values = _apart(q, kv, heads)
    scale = 1 / np.sqrt(queries.shape[-1]).astype(q.dtype)
    g = g.reshape(*g.shape[:2], heads, values.shape[-1])
    by_weight = np.einsum("ebhd,ebhd->ebh", g[edges.receivers], values[edges.senders])
    mean = _by_receiver(np.add, weights * by_weight, edges, 0)
    slope = weights * (by_weight - mean[edges.receivers])
    g_q = _by_receiver(np.add, slope[..., None] * keys[edges.senders], edges, 0) * scale
    g_q = g_q if q.shape[1] == g.shape[1] else g_q.sum(1, keepdims=True)
    back = Edges(edges.out_starts, edges.senders, edges.senders[edges.out_edges], edges.starts, edges.senders)
    wide = np.broadcast_to(queries[edges.receivers], (len(slope), *keys.shape[1:]))
    g_k = _by_receiver(np.add, (slope[..., None] * wide * scale)[edges.out_edges], back, 0)
    g_v = _by_receiver(np.add, (weights[..., None] * g[edges.receivers])[edges.out_edges], back, 0)
    g_kv = np.concatenate([_joined(g_k), _joined(g_v)], -1)
    return slope, g_q.reshape(q.shape), g_kv


def _apart(q: Array, kv: Array, heads: int) -> tuple[Array, Array, Array]:
    keys, values = np.split(kv, [q.shape[-1]], -1)
    return tuple(of.reshape(*of.shape[:2], heads, of.shape[-1] // heads) for of in (q, keys, values))  # pyright: ignore[reportReturnType]  (three)


def _joined(x: Array) -> Array:
    """Heads side by side."""
    nodes, batch, heads, width = x.shape
    return x.reshape(nodes, batch, heads * width)


def _by_receiver(join: np.ufunc, x: Array, edges: Edges, none: float) -> Array:
    """Join what edges of a receiver have, in their order; `none` where there are no edges."""
    starts = np.asarray(edges.starts, np.int64)
    found = np.full((len(starts) - 1, *x.shape[1:]), none, x.dtype)
    some = starts[:-1] < starts[1:]
    if some.any():
        found[some] = join.reduceat(x, starts[:-1][some], 0)
    return found
