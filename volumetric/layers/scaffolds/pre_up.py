"""PreUp: a core on widened rows, with a gated path beside it (Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.base import Arrays, Grads, ParamSpec, Saved, layer, rows
from volumetric.layers.dense import affine, affine_params, affine_vjp
from volumetric.layers.mlstm import MLSTM
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.base import (
    CORE,
    RunCore,
    Widened,
    activated,
    inside,
    join_nodes,
    normed,
    own_params,
)
from volumetric.layers.scope import Scope, columns, gated, linear


@layer("pre_up")
class PreUp(Widened):
    """``y = x + W₂ ((core(ã) + k ⊙ silu(a)) ⊙ silu(z)) + b₂`` with ``[a, z] = W₁ norm(x) + b₁``, on ``[…, embed_dim]``.

    The core reads ``ã = silu(a)``, or a itself. Its norm is a layer norm with a gain alone; k is a vector that begins
    with ones.

    Attributes
    ----------
    embed_dim : width of input and output
    factor : a and z are this times as wide, rounded down
    activate_input : whether the core reads silu(a); None: unless it is an `MLSTM`
        whose keys are those of its convolution, which has an activation
    core : the layer inside, from rows as wide as a to such rows
    """

    factor: float = 2.0
    activate_input: bool | None = None

    @property
    def activates(self) -> bool:
        """Whether the core reads silu(a)."""
        if self.activate_input is not None:
            return self.activate_input
        return not (isinstance(self.core, MLSTM) and self.core.projection == "dense")

    @property
    def norm(self) -> LayerNorm:
        """What x goes through first."""
        return LayerNorm(num_features=self.embed_dim, bias=False)

    def own(self) -> tuple[ParamSpec, ...]:
        return (
            ParamSpec(name="norm.weight", shape=(self.embed_dim,), init="ones", packable=False),
            *affine_params("in.", 2 * self.hidden, self.embed_dim, bias=True),
            ParamSpec(name="skip", shape=(self.hidden,), init="ones", packable=False),
            *affine_params("out.", self.embed_dim, self.hidden, bias=True),
            *self.join_params("gate."),
        )

    def reads(self, path: str, shape: Shape) -> Shape:
        return (*shape[:-1], self.hidden)

    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        normal = self.norm.forward({"weight": p["norm.weight"]}, x)
        a, z = np.split(affine(p, "in.", normal[0]), 2, axis=-1)
        beside, open_z = activate("silu", a), activate("silu", z)
        made, inner = core(beside if self.activates else a)
        whole = made + p["skip"] * beside
        y, joint = self.join(p, "gate.", x, affine(p, "out.", whole * open_z))
        kept = {"normal": normal, "a": a, "z": z, "beside": beside, "open": open_z, "whole": whole}
        return y, {**kept, "core": inner, "joint": joint}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        a, beside, open_z, whole = (saved[name] for name in ("a", "beside", "open", "whole"))
        gx, g = self.join_vjp(p, "gate.", saved["joint"], gy, params)
        g = affine_vjp(p, "out.", whole * open_z, g, params)
        g_whole, g_z = g * open_z, g * whole * slope("silu", saved["z"])
        params["skip"] = rows(g_whole * beside).sum(0)
        g_beside, g_core = g_whole * p["skip"], self.core_vjp(p, saved["core"], g_whole, params)
        if self.activates:
            g_a = (g_beside + g_core) * slope("silu", a)
        else:
            g_a = g_beside * slope("silu", a) + g_core
        y, normal = saved["normal"]
        g = affine_vjp(p, "in.", y, np.concatenate([g_a, g_z], axis=-1), params)
        norm = self.norm.vjp({"weight": p["norm.weight"]}, normal, g)
        params["norm.weight"] = norm.params["weight"]
        through = norm.inputs[0]
        assert through is not None
        return Grads((gx + through,), params)

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, own_params(scope, self)
        with work.at(scope.path, mixes=False):
            wide = linear(work, p, ("in.",), normed(work, self.norm, p["norm.weight"], x))
            a, z = (columns(work, wide, at * self.hidden, self.hidden) for at in (0, 1))
            beside = activated(work, a, "silu")
        made = inside(scope, CORE, self.core, beside if self.activates else a)
        with work.at(scope.path, mixes=False):
            whole = work.add(made, work.binary("mul", beside, p["skip"]))
            return join_nodes(
                work, self.gated, p, "gate.", x, linear(work, p, ("out.",), gated(work, z, whole, "silu"))
            )
