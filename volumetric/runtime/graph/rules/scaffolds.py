"""Rules of scaffolds: what stands around the rule of the layer inside."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.graph.build import GraphBuilder
from volumetric.layers import Adapter, Column, LayerSpec, PassThrough, PostUp, PreUp
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.base import CORE, Scaffold
from volumetric.runtime.graph.rules.base import Scope, columns, flat, gated, linear, rule, scaled
from volumetric.runtime.graph.rules.containers import joined


@rule("pass_through")
def _pass_through(scope: Scope, spec: PassThrough, x: int) -> int:
    return inside(scope, CORE, spec.core, x)


@rule("pre_up", "pre_up_gated")
def _pre_up(scope: Scope, spec: PreUp, x: int) -> int:
    work, p = scope.work, own_params(scope, spec)
    with work.at(scope.path, mixes=False):
        wide = linear(work, p, ("in.",), _normed(work, spec.norm, p["norm.weight"], x))
        a, z = (columns(work, wide, at * spec.hidden, spec.hidden) for at in (0, 1))
        beside = activated(work, a, "silu")
    made = inside(scope, CORE, spec.core, beside if spec.activates else a)
    with work.at(scope.path, mixes=False):
        whole = work.add(made, work.binary("mul", beside, p["skip"]))
        return _join(work, spec.gated, p, "gate.", x, linear(work, p, ("out.",), gated(work, z, whole, "silu")))


@rule("post_up", "post_up_gated")
def _post_up(scope: Scope, spec: PostUp, x: int) -> int:
    work, p = scope.work, own_params(scope, spec)
    with work.at(scope.path, mixes=False):
        first = _normed(work, spec.norm, p["norm1.weight"], x)
    made = inside(scope, CORE, spec.core, first)
    with work.at(scope.path, mixes=False):
        h = _join(work, spec.gated, p, "gate1.", x, made)
        hidden = linear(work, p, ("up.",), _normed(work, spec.norm, p["norm2.weight"], h), activation="silu")
        return _join(work, spec.gated, p, "gate2.", h, linear(work, p, ("down.",), hidden))


@rule("adapter")
def _adapter(scope: Scope, spec: Adapter, x: int) -> int:
    work, p = scope.work, own_params(scope, spec)
    h = inside(scope, CORE, spec.core, x)
    with work.at(scope.path, mixes=False):
        read = _normed(work, spec.norm, p["norm.weight"], h, p["norm.bias"])
        made = linear(work, p, ("up.",), linear(work, p, ("down.",), read, activation=spec.activation))
        return work.add(h, work.binary("mul", made, p["gate"]))


def own_params(scope: Scope, spec: Scaffold | Column) -> dict[str, int]:
    """Return the tensors of the parameters that are not those of the layer inside."""
    return {p.name: scope.param(p.name, p.shape) for p in spec.own()}


def inside(scope: Scope, path: str, spec: LayerSpec, x: int) -> int:
    """Emit a layer inside of another; its nodes alone mix rows, if it does."""
    with scope.work.at(scope.path, mixes=spec.contextual or spec.batch_statistics == "always"):
        return scope.child(path).emit(spec, x)


def activated(work: GraphBuilder, x: int, name: str) -> int:
    """Emit ``act(x)``, element by element."""
    return work.emit("activate", (x,), activation=name)[0] if work.takes("activate", (x,)) else work.unary(x, name)


def _normed(work: GraphBuilder, norm: LayerNorm, gain: int, x: int, bias: int | None = None) -> int:
    return work.reshape(work.norm(flat(work, x), gain, bias, kind="layer", eps=norm.eps), work.shape(x))


def _join(work: GraphBuilder, gates: bool, p: Mapping[str, int], name: str, x: int, f: int) -> int:
    """Emit ``x + f``, or what the gate `name` makes of both."""
    if not gates:
        return joined(work, (x, f), "add")

    def product(matrix: str, of: int) -> int:
        return linear(work, p, (f"{name}{matrix}.",), of)

    r = joined(work, (product("wr", f), product("ur", x)), "add")
    new = activated(work, joined(work, (product("wg", f), product("ug", gated(work, r, x, "sigmoid"))), "add"), "tanh")
    # 1 - z, of which b is the bias as it is stored
    weights = {"weight": p[f"{name}wz.weight"], "bias": p[f"{name}bias"]}
    less_f, less_x = (scaled(work, of, -1.0) for of in (f, x))
    stays = joined(work, (linear(work, weights, ("",), less_f), product("uz", less_x)), "add")
    return joined(work, (new, gated(work, stays, joined(work, (x, scaled(work, new, -1.0)), "add"), "sigmoid")), "add")
