"""The rule of XLAttention: a window as products of matrices; row by row where their number is open."""

from __future__ import annotations

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.distances import FEW, Held, Read, attend, distance_attend
from volumetric.layers import XLAttention
from volumetric.runtime.graph.rules.base import Scope, linear, rule, start


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
            y, after = distance_attend(inner, heads, Read(*now), constants[0], Held(*states))
            return [y], list(after)

        steps = [work.reshape(work.permute(each, (1, 0, 2)), (length, batch, 1, inner)) for each in of]
        [y], ends = work.scan(body, steps, [r], held)
        y, held = work.permute(work.reshape(y, (length, batch, inner)), (1, 0, 2)), Held(*ends)
    elif length:
        few = scope.training is None and length <= FEW
        emit = distance_attend if few else attend
        y, held = emit(work, heads, of, r, held, scope.kept_before(x))
    else:
        y = v
    if scope.keeps_state(x):
        for name, value in held._asdict().items():
            scope.keep(name, value)
    y = work.reshape(y, (*work.shape(x)[:-1], inner))
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("o.",), y)
