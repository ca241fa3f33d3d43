"""The rule of AGaLiTe: projections around linear scans of all its sums."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.graph.operations.linear_scan import linear_scan
from volumetric.layers import AGaLiTe
from volumetric.runtime.graph.rules.base import Scope, linear, rule, start

_FEW: Final = 16
"""Rows of a window up to which sums of all phases are one: launches and steps cost more than what they move."""


@rule("agalite")
def _agalite(scope: Scope, spec: AGaLiTe, x: int) -> int:
    work, p, r = scope.work, scope.params(spec), spec.r
    heads, width = spec.by_head
    with work.at(scope.path, mixes=False):
        wide, small = (linear(work, p, (name,), x) for name in ("kqvbg.", "p."))
    batch, length, _ = work.shape(scope.sequenced(x))
    rows, keys = batch * length, heads * spec.features
    k, q, v, beta, gamma = work.split(work.reshape(wide, (rows, heads, 5, width)), (1,) * 5, 2)
    p1, p2, p3 = work.split(work.reshape(small, (rows, heads, 3, spec.eta)), (1,) * 3, 2)

    # Both sides of an outer product are spread to its size by constant matrices of 0 and 1, for which devices have
    # fast products, and so have gradients; as a product with broadcasting its rows would be of `eta` numbers.
    places = np.arange(spec.features)
    spread = (np.arange(width)[:, None] == places // spec.eta, np.arange(spec.eta)[:, None] == places % spec.eta)

    def outer(a: int, b: int, name: str) -> int:
        """Products of functions of both, ``[rows, 1, keys]``."""
        sides = []
        for side, matrix in zip((a, b), spread, strict=True):
            each = work.reshape(work.unary(side, name), (1, rows * heads, len(matrix)))
            sides.append(work.gemm(each, work.constant(matrix[None].astype(np.float64), "spread")))
        return work.reshape(work.binary("mul", *sides), (rows, 1, keys))

    decay, beta = outer(gamma, p3, "sigmoid"), work.reshape(work.unary(beta, "sigmoid"), (rows, 1, heads * width))
    v = work.reshape(v, (rows, 1, heads * width))
    phases = _phases(scope, spec, x)
    before = {name: start(scope, x, name, shape) for name, shape in spec.shapes.items() if name != "tick"}
    summed = work.concat((before["tilde_k"], work.reshape(before["s"], (batch, 1, heads, spec.features))), 1)

    def sums(of: int, left: int, phase: int | None, first: int) -> int:
        """Emit the sums of ``phase · of`` of which `left` is left at each step, ``[B, T, phases · …]``."""
        count, each = 1 if phase is None else work.shape(phase)[1], work.shape(of)[2]
        u = of if phase is None else work.binary("mul", of, phase)
        u, a = (work.reshape(i, (batch, length, count * each)) for i in (u, work.broadcast(left, (rows, count, each))))
        return linear_scan(work, u, a, work.reshape(first, (batch, count * each)), scope.kept_before(x))

    # Sums of keys are what takes room and time: in long windows each phase has one of its own, with the same decay, and
    # the last one, which is 1, does not count.
    runs = [(0, r + 1)] if length <= _FEW else [(i, i + 1) for i in range(r + 1)]
    new, left = work.binary("mul", outer(k, p1, "relu"), decay), work.affine(decay, -1.0, 1.0)
    all_keys = [
        sums(new, left, None if run[0] == r else work.part(phases, 1, *run), work.part(summed, 1, *run)) for run in runs
    ]
    left = work.affine(beta, -1.0, 1.0)
    all_values = sums(work.binary("mul", v, beta), left, work.part(phases, 1, 0, r), before["tilde_v"])
    if scope.keeps_state(x) and length:
        ends = [
            work.reshape(work.last(of, 1), (batch, b - a, heads, spec.features))
            for of, (a, b) in zip(all_keys, runs, strict=True)
        ]
        last = work.concat(ends, 1)
        scope.keep("tilde_k", work.part(last, 1, 0, r))
        scope.keep("s", work.reshape(work.part(last, 1, r, r + 1), (batch, heads, spec.features)))
        scope.keep("tilde_v", work.reshape(work.last(all_values, 1), (batch, r, heads, width)))
    asked, met = outer(q, p2, "relu"), list[int]()
    for of, (a, b) in zip(all_keys, runs, strict=True):
        each = work.binary("mul", work.reshape(of, (rows, b - a, keys)), asked)
        met.append(work.reduce(work.reshape(each, (rows, b - a, heads, spec.features)), "sum", (3,)))
    all_met = work.concat(met, 1)
    read = work.binary("mul", work.reshape(all_values, (rows, r, heads, width)), work.part(all_met, 1, 0, r))
    read = work.reshape(work.reduce(read, "sum", (1,)), (rows, heads, width))
    whole = work.affine(work.reshape(work.part(all_met, 1, r, r + 1), (rows, heads, 1)), 2.0 * r, spec.eps)
    y = work.reshape(work.binary("div", read, whole), (*work.shape(x)[:-1], heads * width))
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("out.",), y)


def _phases(scope: Scope, spec: AGaLiTe, x: int) -> int:
    """Emit the cosines of each row's number, and 1 for what has none, ``[rows, r + 1, 1]``; keeps the number."""
    work, period = scope.work, spec.period
    batch, length, _ = work.shape(scope.sequenced(x))
    one = work.constant(np.ones(1), "one")
    steps = work.broadcast(work.reshape(one, (1, 1, 1)), (batch, length, 1))
    count = linear_scan(work, steps, one, start(scope, x, "tick", (1,)), scope.kept_before(x))
    laps = work.unary(work.affine(count, 1 / period, 0.5 / period), "floor")
    tick = work.binary("sub", count, work.affine(laps, float(period)))
    if scope.keeps_state(x) and length:
        scope.keep("tick", work.reshape(work.last(tick, 1), (batch, 1)))
    places = np.arange(period)[None]
    rows = work.reshape(tick, (batch * length, 1))
    above = [work.binary("greater", rows, work.constant(places + edge, "places")) for edge in (-0.5, 0.5)]
    table = np.concatenate([spec.phases(), np.ones((period, 1))], 1)
    chosen = work.reshape(work.binary("sub", *above), (1, batch * length, period))
    found = work.gemm(chosen, work.constant(table[None], "cosines"))
    return work.reshape(found, (batch * length, spec.r + 1, 1))
