"""Attention by content and distance over a bounded memory: as products, and as one operation for a few rows.

``distance_attend`` content, position, k, v [B,T,h·d], r [h,M+1,d], keys, values [B,M,h·d], age [B,1] [, keep [B,T]]
                    → y, keys, values, age. A row sees itself and up to M earlier rows of its sequence, including
                    the last ``age`` rows before the call. Logits are ``(content · k + position · r) / √d`` with r of
                    distance δ in row M - δ. The states are the last M rows, zeros for rows of other sequences.
                    ``heads``: h; ``resets``: whether keep is present. T is 1 or more. Only y has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.graph.operations.operation import (
    Attrs,
    axes_of,
    declare,
    float_output,
    require,
    require_floats,
    vjp_by_recomputing,
)
from volumetric.graph.ops import Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

FEW: Final = 8
"""Most rows for which `distance_attend` is faster than products, which copy the whole memory several times."""


class DistanceRead(NamedTuple):
    """Queries with the bias for content and for distance, keys and values, each ``[B, T, heads · d]``."""

    content: int
    position: int
    k: int
    v: int


class DistanceMemory(NamedTuple):
    """The states: keys and values ``[B, memory, heads · d]``, and age ``[B, 1]``."""

    keys: int
    values: int
    age: int


def distance_attend(
    work: GraphBuilder, heads: int, of: DistanceRead, r: int, memory: DistanceMemory, keep: int | None = None
) -> tuple[int, DistanceMemory]:
    """Emit `attend` as one operation."""
    inputs = [*of, r, *memory, *([] if keep is None else [keep])]
    y, *after = work.emit("distance_attend", inputs, heads=heads, resets=keep is not None)
    return y, DistanceMemory(*after)


def attend(
    work: GraphBuilder, heads: int, of: DistanceRead, r: int, memory: DistanceMemory, keep: int | None = None
) -> tuple[int, DistanceMemory]:
    """Emit attention of T rows, ``[B, T, heads · d]``, by distance, as products, and the states after them.

    Long inputs are computed in blocks of rows, each with the memory that its rows may see, so that work grows linearly
    with T instead of quadratically.

    Parameters
    ----------
    r : codes of the distances ``memory`` … 0, ``[heads, memory + 1, d]``
    keep : ``[B, T]``, 0 for a row that sees nothing before it; None: no resets
    """
    batch, length, inner = work.shape(of.k)
    most = work.shape(memory.keys)[1]
    block = _block(most, inner // heads, length)
    blocks = -(-length // block)
    ones = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(ones, (1, 1, 1)), (batch, length, 1))
    count = linear_scan(work, steps, ones, memory.age, keep)
    keys, values = work.concat((memory.keys, of.k), 1), work.concat((memory.values, of.v), 1)
    # Products would spread NaN from rows that are not seen, because 0 · NaN is NaN: add NaN to the logits instead.
    odd = work.reduce(work.affine(values, 0.0), "sum", (2,))
    clean = work.binary("mul_nonzero", values, work.binary("greater", work.scalar(0.5), odd))

    def into_blocks(x: int) -> int:
        """Return rows by block, ``[B · blocks, block, …]``; the last block is padded with zeros."""
        width = work.shape(x)[2]
        filled = work.pad(x, (0, 0, 0), (0, blocks * block - length, 0))
        return work.reshape(filled, (batch * blocks, block, width))

    def with_memory(x: int) -> int:
        """Return the rows that each block sees, ``[B · blocks, memory + block, …]``."""
        width, every = work.shape(x)[2], most + block
        filled = work.pad(x, (0, 0, 0), (0, blocks * block - length, 0))
        parts = [work.part(filled, 1, at * block, at * block + every) for at in range(blocks)]
        if blocks > 1:
            filled = work.concat([work.reshape(part, (batch, 1, every, width)) for part in parts], 1)
        return work.reshape(filled, (batch * blocks, every, width))

    blocked = DistanceRead(into_blocks(of.content), into_blocks(of.position), with_memory(keys), with_memory(clean))
    read = _attend_window(work, heads, blocked, r, with_memory(odd), into_blocks(count))
    y = work.part(work.reshape(read, (batch, blocks * block, inner)), 1, 0, length)
    last = work.part(count, 1, length - 1, length)
    back = work.constant(np.arange(most - 1, -1, -1.0)[None, :, None] + 0.5, "back")
    shown = work.binary("greater", last, back)
    keys, values = (work.binary("mul_nonzero", work.part(x, 1, length, length + most), shown) for x in (keys, values))
    age = work.binary("min", work.reshape(last, (batch, 1)), work.scalar(float(most)))
    return y, DistanceMemory(keys, values, age)


def _block(memory: int, width: int, length: int) -> int:
    """Return the rows of a block: few compared to the rows they see, but enough that copying does not dominate."""
    return min(length, max(memory // 2, width, 16))


def _attend_window(work: GraphBuilder, heads: int, of: DistanceRead, r: int, odd: int, count: int) -> int:
    """Emit attention of T rows over themselves and `memory` rows before them, ``[B, T, heads · d]``.

    Parameters
    ----------
    of : queries ``[B, T, …]``, keys and values ``[B, memory + T, …]``
    odd : added to the logits of each row that is read, ``[B, memory + T, 1]``
    count : number of rows of its sequence up to each row, ``[B, T, 1]``
    """
    batch, length, inner = work.shape(of.content)
    every, width, groups = work.shape(of.k)[1], inner // heads, batch * heads
    most = every - length

    def split_heads(rows: int) -> int:
        n = work.shape(rows)[1]
        turned = work.permute(work.reshape(rows, (batch, n, heads, width)), (0, 2, 1, 3))
        return work.reshape(turned, (groups, n, width))

    distance = most + np.arange(length)[:, None] - np.arange(every)
    unseen = (distance < 0) | (distance > most)
    reach = np.where(unseen, np.inf, distance + 0.5)  # smallest count of a row that sees this distance
    mask = work.binary("greater", count, work.constant(reach[None], "reach"))
    # Rows with one extra element: each starts one place further right than the row above it.
    r = work.pad(r, (0, 0, 0), (0, length, 0)) if length > 1 else r
    wide = work.gemm(split_heads(of.position), r, trans_b=True)
    if length > 1:
        wide = work.part(work.reshape(wide, (groups, length * (every + 1))), 1, 0, length * every)
    by_distance = work.reshape(wide, (groups, length, every))
    logits = work.binary("add", work.gemm(split_heads(of.content), split_heads(of.k), trans_b=True), by_distance)
    logits = work.reshape(work.affine(logits, width**-0.5), (batch, heads, length, every))
    logits = work.binary("add", logits, work.reshape(odd, (batch, 1, 1, every)))
    logits = work.binary("mask", logits, work.reshape(mask, (batch, 1, length, every)))
    weights = work.softmax(work.reshape(logits, (groups * length, every)))
    y = work.gemm(work.reshape(weights, (groups, length, every)), split_heads(of.v))
    y = work.permute(work.reshape(y, (batch, heads, length, width)), (0, 2, 1, 3))
    return work.reshape(y, (batch, length, inner))


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    name, heads = "distance_attend", attrs["heads"]
    require_floats(name, inputs)
    require(len(inputs) == 8 + attrs["resets"], name, f"takes {8 + attrs['resets']} tensors, got {len(inputs)}")
    content, position, k, v, r, keys, values, age, *keep = inputs
    batch, length, inner = axes_of(name, content, 3)
    memory = axes_of(name, keys, 3)[1]
    require(
        heads > 0 and inner % heads == 0 and length > 0, name, f"{heads} heads must divide {inner}, of one row or more"
    )
    require(position.shape == k.shape == v.shape == content.shape, name, "content, position, k and v need one shape")
    require(r.shape == (heads, memory + 1, inner // heads), name, "r needs a row for each head and distance")
    require(keys.shape == values.shape == (batch, memory, inner), name, "keys and values need rows like those of k")
    require(age.shape == (batch, 1), name, "age needs an element for each sequence")
    require(not keep or keep[0].shape == (batch, length), name, "keep needs an element for each row")
    shapes = (batch, length, inner), keys.shape, values.shape, age.shape
    return [float_output(of, *shape) for of, shape in zip(("attended", "keys", "values", "age"), shapes, strict=True)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute the attention row by row, ``[B, T, heads · d]``, and the new keys, values and age of the memory."""
    content, position, k, v, r, keys, values, age, *keep = inputs
    heads, (batch, length, inner) = attrs["heads"], content.shape
    memory, width, kind = keys.shape[1], inner // heads, content.dtype.type
    keys, values = np.concatenate([keys, k], 1), np.concatenate([values, v], 1)
    y, count = np.zeros_like(content), age[:, 0]

    def split_heads(rows: Array) -> Array:
        return rows.reshape(len(rows), heads, width).swapaxes(0, 1)

    ends = np.zeros_like(keys[:, length:]), np.zeros_like(values[:, length:])
    for t in range(length):
        count = count + kind(1) if not keep else np.where(keep[0][:, t] != 0, count, kind(0)) + kind(1)
        for b in range(batch):
            some = int(min(count[b], memory + 1))
            window = slice(memory + t + 1 - some, memory + t + 1)
            own, read = split_heads(keys[b, window]), split_heads(values[b, window])
            query, placed = (of[b, t].reshape(heads, 1, width) for of in (content, position))
            logits = np.sum(query * own + placed * r[:, memory + 1 - some :], -1) * kind(width**-0.5)
            logits = logits + np.sum(read * kind(0), -1).sum(0)  # NaN in a value makes the row NaN
            top = logits.max(-1, keepdims=True)
            weights = np.exp(logits - np.where(np.isneginf(top), kind(0), top))
            total = weights.sum(-1, keepdims=True)
            weights = np.where(np.isneginf(top), kind(0), weights / np.where(total == 0, kind(1), total))
            y[b, t] = np.einsum("hs,hsd->hd", weights, read).reshape(inner)
            if t == length - 1:
                for end, of in zip(ends, (keys, values), strict=True):
                    remembered = min(some, memory)
                    end[b, memory - remembered :] = of[b, memory + length - remembered :]
    return [y, *ends, np.minimum(count, kind(memory))[:, None]]


def _written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    of, r, memory, keep = (
        DistanceRead(*inputs[:4]),
        inputs[4],
        DistanceMemory(*inputs[5:8]),
        inputs[8] if attrs["resets"] else None,
    )
    y, after = attend(work, attrs["heads"], of, r, memory, keep)
    return y, *after


declare("distance_attend", _infer, _run, vjp_by_recomputing(_written_out, range(7)), written_out=_written_out)
