"""The rule of XLAttention: a window as products of matrices; row by row where their number is open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from volumetric.layers import XLAttention
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.families.linear_scan import linear_scan
from volumetric.runtime.graph.rules.base import Scope, linear, rule, start


class Read(NamedTuple):
    """What rows read: queries with the bias for content and for distance, keys, values; each ``[B, T, heads · d]``."""

    content: int
    position: int
    k: int
    v: int


class Held(NamedTuple):
    """The states: ``[B, memory, heads · d]`` twice, and ``[B, 1]``."""

    keys: int
    values: int
    age: int


@rule("xl_attention")
def _xl_attention(scope: Scope, spec: XLAttention, x: int) -> int:
    work, inner = scope.work, spec.inner
    p = {of.name: scope.param(of.name, of.shape) for of in spec.params() if "/" not in of.name}
    heads, width = spec.by_head
    if spec.maps:
        made = [scope.child(name).emit(of, x) for name, of in spec.maps.items()]
    elif work.shape(x)[0] < 0:  # one product of all three, where devices have operations on rows
        with work.at(scope.path, mixes=False):
            joined = linear(work, p, ("q.", "k.", "v."), x)
        made = work.split(joined, (inner,) * 3, len(work.shape(x)) - 1)
    else:
        made = [linear(work, p, (name,), x) for name in ("q.", "k.", "v.")]
    q, k, v = map(scope.sequenced, made)
    batch, length, _ = work.shape(k)
    content, position = (
        work.binary("add", q, work.reshape(p[name], (inner,))) for name in ("content_bias", "position_bias")
    )
    of = Read(content, position, k, v)
    codes = linear(work, p, ("r.",), work.constant(spec.codes(), "codes"))
    r = work.permute(work.reshape(codes, (spec.memory + 1, heads, width)), (1, 0, 2))
    held = Held(*(start(scope, x, name, shape) for name, shape in spec.shapes.items()))
    if length < 0:

        def body(
            inner: GraphBuilder, now: list[int], constants: list[int], states: list[int]
        ) -> tuple[list[int], list[int]]:
            y, after = attend(inner, spec, Read(*now), constants[0], Held(*states), None)
            return [y], list(after)

        steps = [work.reshape(work.permute(each, (1, 0, 2)), (length, batch, 1, inner)) for each in of]
        [y], ends = work.scan(body, steps, [r], held)
        y, held = work.permute(work.reshape(y, (length, batch, inner)), (1, 0, 2)), Held(*ends)
    elif length:
        y, held = attend(work, spec, of, r, held, scope.kept_before(x))
    else:
        y = v
    if scope.keeps_state(x):
        for name, value in held._asdict().items():
            scope.keep(name, value)
    y = work.reshape(y, (*work.shape(x)[:-1], inner))
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("o.",), y)


def attend(work: GraphBuilder, spec: XLAttention, of: Read, r: int, held: Held, keep: int | None) -> tuple[int, Held]:
    """Emit attention of a window ``[B, T, heads · d]``, and the states behind it.

    Long windows are computed in blocks of rows, each beside the memory that its rows may see, so that work grows with
    the window and not with its square.

    Parameters
    ----------
    r : codes of the distances ``memory`` … 0, ``[heads, memory + 1, d]``
    keep : ``[B, T]``, 0 where a row sees nothing before it; None: nowhere
    """
    batch, length, inner = work.shape(of.k)
    most, block = spec.memory, _block(spec, length)
    blocks = -(-length // block)
    ones = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(ones, (1, 1, 1)), (batch, length, 1))
    count = linear_scan(work, steps, ones, held.age, keep)
    keys, values = work.concat((held.keys, of.k), 1), work.concat((held.values, of.v), 1)
    # In products NaN would come through rows that are not seen, as 0 times NaN: it goes through their logits instead.
    odd = work.reduce(work.affine(values, 0.0), "sum", (2,))
    clean = work.binary("mul_nonzero", values, work.binary("greater", work.scalar(0.5), odd))

    def rows(x: int) -> int:
        """Rows of blocks, ``[B · blocks, block, …]``; what is missing of the last one are zeros."""
        width = work.shape(x)[2]
        filled = work.pad(x, (0, 0, 0), (0, blocks * block - length, 0))
        return work.reshape(filled, (batch * blocks, block, width))

    def beside(x: int) -> int:
        """What blocks see, ``[B · blocks, memory + block, …]``."""
        width, every = work.shape(x)[2], most + block
        filled = work.pad(x, (0, 0, 0), (0, blocks * block - length, 0))
        parts = [work.part(filled, 1, at * block, at * block + every) for at in range(blocks)]
        if blocks > 1:
            filled = work.concat([work.reshape(part, (batch, 1, every, width)) for part in parts], 1)
        return work.reshape(filled, (batch * blocks, every, width))

    asked = Read(rows(of.content), rows(of.position), beside(keys), beside(clean))
    read = _weighed(work, spec, asked, r, beside(odd), rows(count))
    y = work.part(work.reshape(read, (batch, blocks * block, inner)), 1, 0, length)
    last = work.part(count, 1, length - 1, length)
    back = work.constant(np.arange(most - 1, -1, -1.0)[None, :, None] + 0.5, "back")
    shown = work.binary("greater", last, back)
    keys, values = (work.binary("mul_nonzero", work.part(x, 1, length, length + most), shown) for x in (keys, values))
    age = work.binary("min", work.reshape(last, (batch, 1)), work.scalar(float(most)))
    return y, Held(keys, values, age)


def _block(spec: XLAttention, length: int) -> int:
    """Rows of a block: few beside what they see, but not so few that moving that is most of the work."""
    return min(length, max(spec.memory // 2, spec.by_head[1], 16))


def _weighed(work: GraphBuilder, spec: XLAttention, of: Read, r: int, odd: int, count: int) -> int:
    """Emit sums of values by weights of rows that stand behind `memory` others, ``[B, T, heads · d]``.

    Parameters
    ----------
    of : queries ``[B, T, …]``, keys and values ``[B, memory + T, …]``
    odd : what is added to the logits of each row that is read, ``[B, memory + T, 1]``
    count : rows of its sequence up to each row, ``[B, T, 1]``
    """
    batch, length, inner = work.shape(of.content)
    (heads, width), most = spec.by_head, spec.memory
    every, groups = most + length, batch * heads

    def apart(rows: int) -> int:
        n = work.shape(rows)[1]
        turned = work.permute(work.reshape(rows, (batch, n, heads, width)), (0, 2, 1, 3))
        return work.reshape(turned, (groups, n, width))

    distance = spec.distances(length).astype(np.float64)
    unseen = (distance < 0) | (distance > most)
    reach = np.where(unseen, np.inf, distance + 0.5)  # the count that a row of such a distance is seen from
    seen = work.binary("greater", count, work.constant(reach[None], "reach"))
    # Rows of one number more than is read: each begins one place further right than the one above it.
    r = work.pad(r, (0, 0, 0), (0, length, 0)) if length > 1 else r
    wide = work.gemm(apart(of.position), r, trans_b=True)
    if length > 1:
        wide = work.part(work.reshape(wide, (groups, length * (every + 1))), 1, 0, length * every)
    by_distance = work.reshape(wide, (groups, length, every))
    logits = work.binary("add", work.gemm(apart(of.content), apart(of.k), trans_b=True), by_distance)
    logits = work.reshape(work.affine(logits, width**-0.5), (batch, heads, length, every))
    logits = work.binary("add", logits, work.reshape(odd, (batch, 1, 1, every)))
    logits = work.binary("mask", logits, work.reshape(seen, (batch, 1, length, every)))
    weights = work.softmax(work.reshape(logits, (groups * length, every)))
    y = work.gemm(work.reshape(weights, (groups, length, every)), apart(of.v))
    y = work.permute(work.reshape(y, (batch, heads, length, width)), (0, 2, 1, 3))
    return work.reshape(y, (batch, length, inner))
