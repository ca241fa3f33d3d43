"""The rule of Axon: a rotate scan between two products, and its traces."""

from __future__ import annotations

from typing import NamedTuple

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.rotate_scan import rotate_scan
from volumetric.layers import Axon, AxonLinear
from volumetric.layers.axon import LEAST, TRACED
from volumetric.runtime.graph.rules.base import Scope, linear, rule, start


class Turn(NamedTuple):
    """As of `layers.axon`, with the derivative of γ by ν; all ``[hidden]``."""

    rate: int
    angle: int
    g: int
    phi: int
    gamma: int
    gamma_slope: int


@rule("axon")
def _axon(scope: Scope, spec: Axon, x: int) -> int:
    work, p, n = scope.work, scope.params(spec), spec.hidden
    mixed = x
    if spec.mix == "linear":
        with work.at(scope.path, mixes=False):
            mixed = linear(work, p, ("input.",), x)
    elif spec.mix == "srht":
        mixed = linear(work, {"weight": work.constant(spec.transform(), "transform")}, ("",), x)
    # First, as devices may run a concat of rows, and what follows is vectors of no row.
    held = work.concat([start(scope, x, name, (n,)) for name in ("c1", "c2")], 1)
    of, keep, mixed = turn_of(work, p), scope.kept_before(x), scope.sequenced(mixed)
    batch, length, _ = work.shape(mixed)
    driven = work.binary("mul", mixed, of.gamma)
    u = work.concat([work.binary("mul", driven, p[name]) for name in ("w1", "w2")], 2)
    traced = spec.traces and scope.keeps_state(x)
    first = _with_history(scope, p, held, n) if traced else held
    s = rotate_scan(work, u, of.g, of.phi, first, keep)
    if traced and length:
        before = _before(work, s, held, keep)
        scope.keep("traces", _traces(scope, p, of, before, mixed, driven, keep))
    if scope.keeps_state(x) and length:
        last = work.reshape(work.last(s, 1), (batch, 2 * n))
        for at, name in enumerate(("c1", "c2")):
            scope.keep(name, work.part(last, 1, at * n, (at + 1) * n))
    read = work.unary(work.reshape(s, (*work.shape(x)[:-1], 2 * n)), spec.activation)
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("out.",), read)


@rule("axon_linear")
def _axon_linear(scope: Scope, spec: AxonLinear, x: int) -> int:
    work, p = scope.work, {of.name: scope.param(of.name, of.shape) for of in spec.params() if "/" not in of.name}
    with work.at(scope.path, mixes=False):
        own = linear(work, p, ("",), x)
    beside = scope.child("axon").emit(spec.axon, x)
    with work.at(scope.path, mixes=False):
        return (
            work.emit("sum", (own, beside), scale=1.0)[0] if work.takes("sum", (own, beside)) else work.add(own, beside)
        )


def turn_of(work: GraphBuilder, p: dict[str, int]) -> Turn:
    """Emit what ν and ϑ stand for."""
    rate, angle = work.unary(p["nu"], "exp"), work.unary(p["theta"], "exp")
    r = work.unary(work.unary(rate, "neg"), "exp")
    square = work.unary(r, "square")
    gamma = work.unary(work.binary("max", work.affine(square, -1.0, 1.0), work.scalar(LEAST)), "sqrt")
    g, phi = (work.binary("mul", r, work.unary(angle, name)) for name in ("cos", "sin"))
    return Turn(rate, angle, g, phi, gamma, work.binary("div", work.binary("mul", rate, square), gamma))


def _with_history(scope: Scope, p: dict[str, int], held: int, n: int) -> int:
    """Return c before the window, as what depends on parameters by its traces: the same number, with a gradient."""
    work, batch = scope.work, scope.work.shape(held)[0]
    traces = work.reshape(scope.state("traces", (batch, 8, n)), (batch, 4, 2 * n))
    changes = []
    for name in TRACED:
        fixed = work.emit("unary", (p[name],), name="affine", alpha=1.0, beta=0.0)[0]
        work.detached.add(fixed)
        change = work.reshape(work.binary("sub", p[name], fixed), (1, n))  # 0
        changes.append(work.reshape(work.concat((change, change), 1), (1, 1, 2 * n)))
    moved = work.reduce(work.binary("mul", traces, work.concat(changes, 1)), "sum", (1,))
    return work.binary("add", held, work.reshape(moved, (batch, 2 * n)))


def _before(work: GraphBuilder, s: int, held: int, keep: int | None) -> int:
    """Emit c before each row, 0 where it is forgotten."""
    batch, length, wide = work.shape(s)
    if length < 0:
        rows = work.emit("delay", (work.reshape(s, (length, wide)), held))[0]
        return work.reshape(rows, (batch, length, wide))
    first = work.reshape(held, (batch, 1, wide))
    before = work.concat((first, work.part(s, 1, 0, length - 1)), 1) if length > 1 else first
    return before if keep is None else work.binary("mul_nonzero", before, work.reshape(keep, (batch, length, 1)))


def _traces(scope: Scope, p: dict[str, int], of: Turn, before: int, mixed: int, driven: int, keep: int | None) -> int:
    """Emit the traces behind the window: how c depends on parameters turns as c does."""
    work, (batch, length, n) = scope.work, scope.work.shape(mixed)
    c1, c2 = work.split(before, (n, n), 2)

    def turned(rate: int, g: int, phi: int) -> list[int]:
        """``rate · (g c₁ - φ c₂)`` and ``rate · (g c₂ + φ c₁)``."""
        pairs = ("sub", c1, c2), ("add", c2, c1)
        made = (work.binary(of, work.binary("mul", a, g), work.binary("mul", b, phi)) for of, a, b in pairs)
        return [work.binary("mul", each, rate) for each in made]

    slope = work.binary("mul", mixed, of.gamma_slope)
    moved = turned(work.unary(of.rate, "neg"), of.g, of.phi)
    by_nu = [work.binary("add", at, work.binary("mul", slope, p[w])) for at, w in zip(moved, ("w1", "w2"), strict=True)]
    by_theta = turned(of.angle, work.unary(of.phi, "neg"), of.g)
    none = work.zeros((batch, length, n))
    u = work.concat((by_nu[0], by_theta[0], driven, none, by_nu[1], by_theta[1], none, driven), 2)
    g, phi = (work.concat((one,) * 4, 0) for one in (of.g, of.phi))
    held = work.reshape(scope.state("traces", (batch, 8, n)), (batch, 4, 2, n))
    held = work.reshape(work.permute(held, (0, 2, 1, 3)), (batch, 8 * n))
    every = rotate_scan(work, u, g, phi, held, keep)
    last = work.permute(work.reshape(work.last(every, 1), (batch, 2, 4, n)), (0, 2, 1, 3))
    return work.reshape(last, (batch, 8, n))
