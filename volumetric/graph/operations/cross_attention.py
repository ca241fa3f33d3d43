"""Cross attention between many small parts of one table of rows, including its projections, as one operation.

``cross_attend``    table [R,d], query rows and key rows int32 [E,P,N] and [E,P,M], weights of q, k, v, o [E,d,d] that
                    rows are multiplied by, biases [E,d] [, seen [M,N]] → y [E,P,N,d]: ``softmax(q kᵀ / √e) v`` in
                    ``heads`` of e elements. ``masked``: a query attends to the keys whose seen is not 0; without any
                    y is 0. ``known``: keys and values [K,d], without weights and biases, come before seen; key rows
                    then number their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.operation import (
    Attrs,
    axes_of,
    declare,
    float_output,
    require,
    require_floats,
    vjp_by_recomputing,
)
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

MOST = 1 << 18
"""Elements of a part, with all intermediate values, that fit the L2 cache of a core."""
SIDES = "qkvo"
"""Projections of rows: to queries, keys, values and output."""


def is_small(queries: int, keys: int, width: int) -> bool:
    """Return whether parts of these sizes run faster one by one than as products over all parts."""
    return (3 * queries + 2 * keys + 4 * width) * width + 64 * keys <= MOST


def cross_attend(
    work: GraphBuilder,
    heads: int,
    rows: tuple[int, int, int],
    weights: Sequence[int],
    biases: Sequence[int],
    mask: int | None = None,
    known: Sequence[int] = (),
) -> int:
    """Emit attention of parts of a table over others, ``[E, P, N, d]``.

    Parameters
    ----------
    rows : the table ``[R, d]``, and the indices of query rows, int32 ``[E, P, N]``, and of key rows, ``[E, P, M]``
    weights, biases : of queries, keys, values and output, ``[E, d, d]`` that rows are multiplied by, and ``[E, d]``
    mask : which queries see each key, ``[M, N]`` of 0 and 1; None: all
    known : keys and values, ``[K, d]`` each, indexed by the key rows; `weights` and `biases` are then those of queries
        and output only
    """
    inputs = [*rows, *weights, *biases, *known, *([] if mask is None else [mask])]
    return work.emit("cross_attend", inputs, heads=heads, masked=mask is not None, known=bool(known))[0]


class CrossAttendInputs(NamedTuple):
    """The inputs of the operation by kind; weights and biases by their `SIDES`."""

    table: Any
    asks: Any
    tells: Any
    weights: Mapping[str, Any]
    biases: Mapping[str, Any]
    known: tuple[Any, ...]
    masks: tuple[Any, ...]


def cross_attend_inputs(inputs: Sequence[Any], attrs: Attrs) -> CrossAttendInputs:
    """Split the inputs of the operation by kind."""
    table, asks, tells, *rest = inputs
    sides = "qo" if attrs["known"] else SIDES
    count = len(sides)
    weights, biases = (dict(zip(sides, of, strict=True)) for of in (rest[:count], rest[count : 2 * count]))
    first = 2 * count + (2 if attrs["known"] else 0)
    return CrossAttendInputs(table, asks, tells, weights, biases, tuple(rest[2 * count : first]), tuple(rest[first:]))


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    name, heads = "cross_attend", attrs["heads"]
    count = (9 if attrs["known"] else 11) + attrs["masked"]
    require(len(inputs) == count, name, f"takes {count} tensors, got {len(inputs)}")
    of = cross_attend_inputs(inputs, attrs)
    table, asks, tells = of[:3]
    require_floats(name, (table, *inputs[3:]))
    _, d = axes_of(name, table, 2)
    edges, parts, n = axes_of(name, asks, 3)
    m = axes_of(name, tells, 3)[2]
    require(asks.dtype == tells.dtype == "int32", name, "row indices must be int32")
    require(tells.shape == (edges, parts, m), name, f"key rows need shape {[edges, parts, m]}, got {list(tells.shape)}")
    require(heads > 0 and d % heads == 0, name, f"{heads} heads do not divide a width of {d}")
    require(all(one.shape == (edges, d, d) for one in of.weights.values()), name, "weights need shape [edges, d, d]")
    require(all(one.shape == (edges, d) for one in of.biases.values()), name, "biases need shape [edges, d]")
    known = {one.shape for one in of.known}
    require(
        all(len(known) == 1 and shape[1:] == (d,) for shape in known), name, "keys and values need shape [known, d]"
    )
    require(all(one.shape == (m, n) for one in of.masks), name, "seen needs shape [keys, queries]")
    return [float_output("crossed", edges, parts, n, d)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    of = cross_attend_inputs(inputs, attrs)
    table, asks, tells = of[:3]
    heads, kind = attrs["heads"], table.dtype.type

    def project(x: Array, side: str) -> Array:
        return x @ of.weights[side][:, None] + of.biases[side][:, None, None]

    def split_heads(x: Array) -> Array:
        return x.reshape(*x.shape[:3], heads, -1).swapaxes(2, 3)

    keys_values = tuple(x[tells] for x in of.known) or tuple(project(table[tells], side) for side in "kv")
    q, k, v = (split_heads(x) for x in (project(table[asks], "q"), *keys_values))
    logits = q @ k.swapaxes(3, 4) * kind(q.shape[-1] ** -0.5)
    for mask in of.masks:
        logits = np.where(mask.T != 0, logits, kind(-np.inf))
    top = logits.max(-1, keepdims=True)
    unnormalised = np.exp(logits - np.where(np.isneginf(top), kind(0), top))
    total = unnormalised.sum(-1, keepdims=True)
    read = (unnormalised / np.where(total == 0, kind(1), total)) @ v
    return [project(read.swapaxes(2, 3).reshape(*asks.shape, -1), "o")]


def _written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    """Emit the decomposition, ``[E, P, N, d]``: gathered rows, products and a softmax."""
    of = cross_attend_inputs(inputs, attrs)
    table, asks, tells = of[:3]
    (edges, parts, n), m, d, heads = work.shape(asks), work.shape(tells)[2], work.shape(table)[1], attrs["heads"]

    def gather(x: int, ids: int) -> int:
        count = work.shape(ids)[2]
        flat = work.reshape(ids, (edges * parts * count,))
        return work.reshape(work.gather_rows(x, flat), (edges, parts * count, d))

    def project(x: int, side: str) -> int:
        return work.gemm(x, of.weights[side], of.biases[side], groups=edges)

    def split_heads(x: int, count: int) -> int:
        split = work.permute(work.reshape(x, (edges * parts, count, heads, d // heads)), (0, 2, 1, 3))
        return work.reshape(split, (edges * parts * heads, count, d // heads))

    if of.known:
        keys_values = [gather(x, tells) for x in of.known]
    else:
        rows = gather(table, tells)
        keys_values = [project(rows, side) for side in "kv"]
    q, (k, v) = split_heads(project(gather(table, asks), "q"), n), (split_heads(x, m) for x in keys_values)
    logits = work.gemm(work.affine(q, (d // heads) ** -0.5), k, trans_b=True)
    for mask in of.masks:
        logits = work.binary("mask", logits, work.reshape(work.permute(mask, (1, 0)), (1, n, m)))
    weights = work.softmax(work.reshape(logits, (edges * parts * heads * n, m)))
    read = work.gemm(work.reshape(weights, (edges * parts * heads, n, m)), v)
    read = work.permute(work.reshape(read, (edges * parts, heads, n, d // heads)), (0, 2, 1, 3))
    return (work.reshape(project(work.reshape(read, (edges, parts * n, d)), "o"), (edges, parts, n, d)),)


def _vjp(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
    wrt = (0, *range(3, len(node.inputs) - node.attrs["masked"]))
    return vjp_by_recomputing(_written_out, wrt)(work, node, g)


declare("cross_attend", _infer, _run, _vjp, written_out=_written_out)
