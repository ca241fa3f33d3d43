"""`edge_attend`: attention of nodes over their neighbours in a graph, edge by edge.

``edge_attend``     q [R,B or 1,h·d], kv [S,B,h·(d+e)]: the keys of all heads before their values, bias [E,h or 1], and
                    the edges as int32 lists: starts [R+1] of each receiver, senders [E], receivers [E], and for the
                    gradient out_starts [S+1], out_edges [E]: edges by sender → m [R,B,h·e], weights [E,B,h]. Weights
                    are the softmax over a receiver's edges of ``q·k / √d + bias``, m is Σ weight · v, in the order of
                    edges. An edge with bias -inf is ignored; without edges m is 0. ``heads``; ``most_in``,
                    ``most_out``: most edges of a receiver and of a sender. q, kv and bias have gradients.
``edge_attend_grad`` g of m, weights, q, kv, starts, senders, receivers, out_starts, out_edges → gradients of the scores
                    [E,B,h], of q, of kv. Attributes as ``edge_attend``. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.elementwise import sum_to_shape
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


class EdgeLists(NamedTuple):
    """Edges by receiver, and an index of edges by sender.

    Attributes
    ----------
    starts : first edge of each receiver, and the end, ``[R + 1]``
    senders, receivers : of each edge, ``[E]``
    out_starts : first index of each sender in `out_edges`, and the end, ``[S + 1]``
    out_edges : edge numbers by sender, ascending for each, ``[E]``
    """

    starts: Array
    senders: Array
    receivers: Array
    out_starts: Array
    out_edges: Array


def edges_of(starts: Array, senders: Array, count: int) -> EdgeLists:
    """Return edges with the index by sender, all int32; `count` is the number of senders."""
    receivers = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    out_edges = np.argsort(senders, kind="stable")
    out_starts = np.searchsorted(np.asarray(senders)[out_edges], np.arange(count + 1))
    arrays = starts, senders, receivers, out_starts, out_edges
    return EdgeLists(*(np.ascontiguousarray(array, np.int32) for array in arrays))


def edge_attend(work: GraphBuilder, q: int, kv: int, bias: int, edges: EdgeLists, heads: int) -> int:
    """Emit ``m[r] = Σ α v[sender]``, see `run_edge_attend`; the edges become constants.

    Parameters
    ----------
    q : ``[R, B or 1, heads · d]``
    kv : ``[S, B, heads · (d + e)]``
    bias : ``[E, heads or 1]``
    """
    lists = [work.constant(array, name) for name, array in zip(EdgeLists._fields, edges, strict=True)]
    attrs = {
        "heads": heads,
        "most_in": int(np.diff(edges.starts).max(initial=0)),
        "most_out": int(np.diff(edges.out_starts).max(initial=0)),
    }
    return work.emit("edge_attend", (q, kv, bias, *lists), **attrs)[0]


def run_edge_attend(q: Array, kv: Array, bias: Array, edges: EdgeLists, heads: int) -> tuple[Array, Array]:
    """``m[r] = Σ α v[sender]`` with α the softmax over a receiver's edges of ``q[r]·k[sender] / √d + bias``.

    An edge with bias -inf is ignored; a receiver without edges gets zeros.

    Parameters
    ----------
    q : ``[R, B or 1, heads · d]``
    kv : ``[S, B, heads · (d + e)]``, the keys of all heads before their values
    bias : ``[E, heads or 1]``

    Returns
    -------
    m ``[R, B, heads · e]``, and α ``[E, B, heads]``
    """
    queries, keys, values = _split_edge_heads(q, kv, heads)
    with np.errstate(invalid="ignore", over="ignore"):  # one stream may have NaN or inf
        logits = np.einsum("ebhd,ebhd->ebh", queries[edges.receivers], keys[edges.senders])
        logits = logits / np.sqrt(queries.shape[-1]).astype(q.dtype) + bias[:, None]
        top = _by_receiver(np.maximum, logits, edges, -np.inf)
        weights = np.exp(logits - np.where(top == -np.inf, 0, top)[edges.receivers])
        total = _by_receiver(np.add, weights, edges, 0)
        weights = (weights / np.where(total == 0, 1, total)[edges.receivers]).astype(q.dtype)
        message = _by_receiver(np.add, weights[..., None] * values[edges.senders], edges, 0)
    return _merge_edge_heads(message), weights


def run_edge_attend_back(
    g: Array, weights: Array, q: Array, kv: Array, edges: EdgeLists, heads: int
) -> tuple[Array, Array, Array]:
    """Return the gradients of the logits ``[E, B, heads]``, of q and of kv from the gradient of m."""
    queries, keys, values = _split_edge_heads(q, kv, heads)
    scale = 1 / np.sqrt(queries.shape[-1]).astype(q.dtype)
    g = g.reshape(*g.shape[:2], heads, values.shape[-1])
    by_weight = np.einsum("ebhd,ebhd->ebh", g[edges.receivers], values[edges.senders])
    mean = _by_receiver(np.add, weights * by_weight, edges, 0)
    slope = weights * (by_weight - mean[edges.receivers])
    g_q = _by_receiver(np.add, slope[..., None] * keys[edges.senders], edges, 0) * scale
    g_q = g_q if q.shape[1] == g.shape[1] else g_q.sum(1, keepdims=True)
    back = EdgeLists(edges.out_starts, edges.senders, edges.senders[edges.out_edges], edges.starts, edges.senders)
    wide = np.broadcast_to(queries[edges.receivers], (len(slope), *keys.shape[1:]))
    g_k = _by_receiver(np.add, (slope[..., None] * wide * scale)[edges.out_edges], back, 0)
    g_v = _by_receiver(np.add, (weights[..., None] * g[edges.receivers])[edges.out_edges], back, 0)
    g_kv = np.concatenate([_merge_edge_heads(g_k), _merge_edge_heads(g_v)], -1)
    return slope, g_q.reshape(q.shape), g_kv


def _split_edge_heads(q: Array, kv: Array, heads: int) -> tuple[Array, Array, Array]:
    keys, values = np.split(kv, [q.shape[-1]], -1)
    return tuple(of.reshape(*of.shape[:2], heads, of.shape[-1] // heads) for of in (q, keys, values))  # pyright: ignore[reportReturnType]  (three)


def _merge_edge_heads(x: Array) -> Array:
    """Concatenate heads."""
    nodes, batch, heads, width = x.shape
    return x.reshape(nodes, batch, heads * width)


def _by_receiver(join: np.ufunc, x: Array, edges: EdgeLists, none: float) -> Array:
    """Reduce the values of the edges of each receiver by `join`, in order; `none` for receivers without edges."""
    starts = np.asarray(edges.starts, np.int64)
    joined = np.full((len(starts) - 1, *x.shape[1:]), none, x.dtype)
    some = starts[:-1] < starts[1:]
    if some.any():
        joined[some] = join.reduceat(x, starts[:-1][some], 0)
    return joined


def _check(op: str, q: Tensor, kv: Tensor, lists: Sequence[Tensor], attrs: Attrs) -> tuple[int, int, int, int]:
    """Check the inputs of both operations; return receivers, batch, edges, and the width of a message."""
    receivers, own, width = axes_of(op, q, 3)
    senders, batch, wide = axes_of(op, kv, 3)
    heads = attrs["heads"]
    require(own in (1, batch), op, f"got queries of {own} streams, expected 1 or {batch}")
    require(width % heads == wide % heads == 0 < width < wide, op, f"{heads} heads do not divide {width} and {wide}")
    require(all(t.dtype == "int32" and len(t.shape) == 1 for t in lists), op, "edges must be int32 lists")
    starts, edges, readers, out_starts, out_edges = (t.shape[0] for t in lists)
    fits = starts == receivers + 1 and out_starts == senders + 1 and edges == readers == out_edges
    require(fits, op, f"the lists of edges do not match {receivers} receivers and {senders} senders")
    return receivers, batch, edges, wide - width


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    q, kv, bias, *lists = inputs
    require(len(lists) == 5, "edge_attend", f"takes 8 tensors, got {len(inputs)}")
    receivers, batch, edges, width = _check("edge_attend", q, kv, lists, attrs)
    require(bias.shape in ((edges, 1), (edges, attrs["heads"])), "edge_attend", "bias needs an element for each edge")
    return [float_output("message", receivers, batch, width), float_output("weights", edges, batch, attrs["heads"])]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    q, kv, bias, *lists = inputs
    return [*run_edge_attend(q, kv, bias, EdgeLists(*lists), attrs["heads"])]


def _vjp(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
    q, kv, bias, *lists = node.inputs
    slope, g_q, g_kv = work.emit("edge_attend_grad", (g, node.outputs[1], q, kv, *lists), **node.attrs)
    edges, _, heads = work.shape(slope)
    g_bias = work.reshape(work.reduce(slope, "sum", (1,)), (edges, heads))
    return [g_q, g_kv, sum_to_shape(work, g_bias, work.shape(bias)), *(None for _ in lists)]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    g, weights, q, kv, *lists = inputs
    require(len(lists) == 5, "edge_attend_grad", f"takes 9 tensors, got {len(inputs)}")
    receivers, batch, edges, width = _check("edge_attend_grad", q, kv, lists, attrs)
    fits = g.shape == (receivers, batch, width) and weights.shape == (edges, batch, attrs["heads"])
    require(fits, "edge_attend_grad", "the gradient or the weights have a wrong shape")
    return [float_output("slope", *weights.shape), float_output("g_q", *q.shape), float_output("g_kv", *kv.shape)]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, weights, q, kv, *lists = inputs
    return [*run_edge_attend_back(g, weights, q, kv, EdgeLists(*lists), attrs["heads"])]


declare("edge_attend", _infer, _run, _vjp)
declare("edge_attend_grad", _infer_grad, _run_grad)
