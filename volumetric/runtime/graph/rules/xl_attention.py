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
        qkv = work.concat(made, len(work.shape(x)) - 1)
    else:
        with work.at(scope.path, mixes=False):
            qkv = linear(work, p, ("q.", "k.", "v."), x)
    rows = scope.sequenced(qkv)
    batch, length, _ = work.shape(rows)
    q, k, v = work.split(rows, (inner,) * 3, 2)
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

    Parameters
    ----------
    r : codes of the distances ``memory`` … 0, ``[heads, memory + 1, d]``
    keep : ``[B, T]``, 0 where a row sees nothing before it; None: nowhere
    """
    batch, length, inner = work.shape(of.k)
    (heads, width), most = spec.by_head, spec.memory
    every, groups = most + length, batch * heads

    def apart(rows: int) -> int:
        count = work.shape(rows)[1]
        turned = work.permute(work.reshape(rows, (batch, count, heads, width)), (0, 2, 1, 3))
        return work.reshape(turned, (groups, count, width))

    keys, values = work.concat((held.keys, of.k), 1), work.concat((held.values, of.v), 1)
    ones = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(ones, (1, 1, 1)), (batch, length, 1))
    count = linear_scan(work, steps, ones, held.age, keep)
    distance = spec.distances(length).astype(np.float64)
    near = work.binary("greater", work.affine(count, 1.0, -0.5), work.constant(distance[None], "distances"))
    band = (distance >= 0) & (distance <= most)
    seen = work.binary("mul", near, work.constant(band[None].astype(np.float64), "band"))
    by_distance = work.gemm(apart(of.position), r, trans_b=True)
    # Rows of one number more than is read: each begins one place further right than the one above it.
    wide = work.reshape(work.pad(by_distance, (0, 0, 0), (0, 0, length)), (groups, length * (every + 1)))
    by_distance = work.reshape(work.part(wide, 1, 0, length * every), (groups, length, every))
    logits = work.binary("add", work.gemm(apart(of.content), apart(keys), trans_b=True), by_distance)
    # In products NaN would come through rows that are not seen, as 0 times NaN: it goes through their logits instead.
    odd = work.reduce(work.affine(values, 0.0), "sum", (2,))
    clean = work.binary("mul_nonzero", values, work.binary("greater", work.scalar(0.5), odd))
    logits = work.reshape(work.affine(logits, width**-0.5), (batch, heads, length, every))
    logits = work.binary("add", logits, work.reshape(odd, (batch, 1, 1, every)))
    logits = work.binary("mask", logits, work.reshape(seen, (batch, 1, length, every)))
    weights = work.softmax(work.reshape(logits, (groups * length, every)))
    y = work.gemm(work.reshape(weights, (groups, length, every)), apart(clean))
    y = work.permute(work.reshape(y, (batch, heads, length, width)), (0, 2, 1, 3))
    shown = work.reshape(work.part(work.part(seen, 1, length - 1, length), 2, length, every), (batch, most, 1))
    keys, values = (work.binary("mul_nonzero", work.part(rows, 1, length, every), shown) for rows in (keys, values))
    last = work.reshape(work.part(count, 1, length - 1, length), (batch, 1))
    age = work.binary("min", last, work.scalar(float(most)))
    return work.reshape(y, (batch, length, inner)), Held(keys, values, age)
