"""Cross attention of many small parts of one table of rows, projections and all, as one operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import Array
from volumetric.runtime.graph.families.base import Attrs, axes_of, declare, floats, out, recomputed, require
from volumetric.runtime.graph.ops import Tensor

if TYPE_CHECKING:
    from volumetric.runtime.graph.build import GraphBuilder

MOST = 1 << 18
"""Numbers of a part, all that is made of it, up to which a core's second cache holds it."""


def is_small(queries: int, keys: int, width: int) -> bool:
    """Whether parts of such sizes are sooner done one by one than in products over all of them."""
    return (3 * queries + 2 * keys + 4 * width) * width + 64 * keys <= MOST


def cross_attend(
    work: GraphBuilder,
    heads: int,
    rows: tuple[int, int, int],
    weights: Sequence[int],
    biases: Sequence[int],
    seen: int | None = None,
) -> int:
    """Emit attention of parts of a table over others, ``[E, P, N, d]``.

    Parameters
    ----------
    rows : the table ``[R, d]``, and the numbers of the rows that ask, int32 ``[E, P, N]``, and tell, ``[E, P, M]``
    weights, biases : of queries, keys, values and what comes out, ``[E, d, d]`` as they multiply rows, and ``[E, d]``
    seen : which rows that ask see each that tells, ``[M, N]`` of 0 and 1; None: all
    """
    inputs = [*rows, *weights, *biases, *([] if seen is None else [seen])]
    return work.emit("cross_attend", inputs, heads=heads, masked=seen is not None)[0]


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    name, heads = "cross_attend", attrs["heads"]
    require(len(inputs) == 11 + attrs["masked"], name, f"takes {11 + attrs['masked']} tensors, got {len(inputs)}")
    table, asks, tells, *rest = inputs
    floats(name, (table, *rest))
    _, d = axes_of(name, table, 2)
    edges, parts, n = axes_of(name, asks, 3)
    m = axes_of(name, tells, 3)[2]
    require(asks.dtype == tells.dtype == "int32", name, "rows have whole numbers")
    require(tells.shape == (edges, parts, m), name, "each part that asks has one that tells")
    require(heads > 0 and d % heads == 0, name, f"{heads} heads do not divide a width of {d}")
    require(all(of.shape == (edges, d, d) for of in rest[:4]), name, "weights are [edges, d, d]")
    require(all(of.shape == (edges, d) for of in rest[4:8]), name, "biases are [edges, d]")
    require(all(of.shape == (m, n) for of in rest[8:]), name, "who sees is [keys, queries]")
    return [out("crossed", edges, parts, n, d)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    table, asks, tells, *rest = inputs
    weights, biases, seen = rest[:4], rest[4:8], rest[8:]
    heads, kind = attrs["heads"], table.dtype.type

    def projected(x: Array, number: int) -> Array:
        return x @ weights[number][:, None] + biases[number][:, None, None]

    def apart(x: Array) -> Array:
        return x.reshape(*x.shape[:3], heads, -1).swapaxes(2, 3)

    told = table[tells]
    q, k, v = (apart(projected(x, number)) for number, x in enumerate((table[asks], told, told)))
    logits = q @ k.swapaxes(3, 4) * kind(q.shape[-1] ** -0.5)
    for mask in seen:
        logits = np.where(mask.T != 0, logits, kind(-np.inf))
    top = logits.max(-1, keepdims=True)
    made = np.exp(logits - np.where(np.isneginf(top), kind(0), top))
    total = made.sum(-1, keepdims=True)
    read = (made / np.where(total == 0, kind(1), total)) @ v
    return [projected(read.swapaxes(2, 3).reshape(*asks.shape, -1), 3)]


def _written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    table, asks, tells, *rest = inputs
    (edges, parts, n), m, d, heads = work.shape(asks), work.shape(tells)[2], work.shape(table)[1], attrs["heads"]

    def taken(ids: int) -> int:
        count = work.shape(ids)[2]
        flat = work.reshape(ids, (edges * parts * count,))
        return work.reshape(work.gather_rows(table, flat), (edges, parts * count, d))

    def projected(x: int, number: int) -> int:
        return work.gemm(x, rest[number], rest[4 + number], groups=edges)

    def apart(x: int, count: int) -> int:
        split = work.permute(work.reshape(x, (edges * parts, count, heads, d // heads)), (0, 2, 1, 3))
        return work.reshape(split, (edges * parts * heads, count, d // heads))

    told = taken(tells)
    q, k, v = apart(projected(taken(asks), 0), n), apart(projected(told, 1), m), apart(projected(told, 2), m)
    logits = work.gemm(work.affine(q, (d // heads) ** -0.5), k, trans_b=True)
    if attrs["masked"]:
        logits = work.binary("mask", logits, work.reshape(work.permute(rest[8], (1, 0)), (1, n, m)))
    weights = work.softmax(work.reshape(logits, (edges * parts * heads * n, m)))
    read = work.gemm(work.reshape(weights, (edges * parts * heads, n, m)), v)
    read = work.permute(work.reshape(read, (edges * parts, heads, n, d // heads)), (0, 2, 1, 3))
    return (work.reshape(projected(work.reshape(read, (edges, parts * n, d)), 3), (edges, parts, n, d)),)


declare("cross_attend", _infer, _run, recomputed(_written_out, (0, *range(3, 11))), written_out=_written_out)
