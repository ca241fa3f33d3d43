"""The rule of recurrent layers."""

from __future__ import annotations

from volumetric.layers.recurrent import Recurrent
from volumetric.runtime.graph.rules.base import Scope, linear, rule


@rule("rnn", "lstm", "gru")
def _recurrent(scope: Scope, spec: Recurrent, x: int) -> int:
    work, p, size, cell = scope.work, scope.params(spec), spec.hidden_size, spec.cell
    with work.at(scope.path, mixes=False):
        from_x = linear(work, p, ("ih.",), x)
    keeps = scope.keeps_state(x) and not spec.reverse
    if keeps and work.takes("recurrence", (x,), tuple(p.values())):
        given = {"x": from_x, "weight.0": p["hh.weight"]} | ({"bias.0": p["hh.bias"]} if spec.bias else {})
        given |= {name: scope.state(name, (1, size)) for name in cell.states}
        parts = work.shape(p["hh.weight"])[:1]
        return work.emit("recurrence", tuple(given.values()), roles=tuple(given), cell=cell.name, parts=parts)[0]
    keep = scope.kept_before(x, reverse=spec.reverse)
    from_x = scope.sequenced(from_x)
    if spec.reverse:
        from_x = work.flip(from_x, 1)
    batch, length, _ = work.shape(from_x)
    if keeps:
        starts = [scope.state(name, (batch, size)) for name in cell.states]
    else:
        starts = [work.zeros((batch, size))] * len(cell.states)
    y, *others = work.recurrent(cell.name, from_x, p["hh.weight"], starts, p.get("hh.bias"), keep)
    if keeps and length:
        ends = (work.reshape(work.last(y, 1), (batch, size)), *others)
        for name, of in zip(cell.states, ends, strict=False):
            scope.keep(name, of)
    y = work.flip(y, 1) if spec.reverse else y
    return work.reshape(y, (*work.shape(x)[:-1], size))
