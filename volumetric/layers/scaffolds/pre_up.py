"""PreUp: a core on widened rows, and a parallel gated path (Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from volumetric.base._typing import Shape
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, columns, emit_gated, linear
from volumetric.layers.layer_spec import ParamSpec, layer
from volumetric.layers.mlstm import MLSTM
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.scaffold import (
    CORE,
    WideningScaffold,
    emit_inside,
    emit_layer_norm,
    join_nodes,
    own_params,
)


@layer("pre_up")
class PreUp(WideningScaffold):
    """A core on widened rows, between projections of ``[…, embed_dim]``.

    ::

        [a, z] = W₁ norm(x) + b₁                     norm: a layer norm with a gain alone
        s = core(silu(a))                            or core(a)
        y = x + W₂ ((s + k ⊙ silu(a)) ⊙ silu(z)) + b₂

    silu(a) bypasses the core, times k, a vector that is 1 at first. The sum passes the gate z.

    Beck et al. 2024 (arXiv 2405.04517).

    Attributes
    ----------
    factor : width of a and z as a multiple of embed_dim, rounded down
    activate_input : whether the core reads silu(a). None: yes, except for an `MLSTM` whose keys come from its
        convolution, which has an activation
    embed_dim : width of input and output
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
        """The norm of the input."""
        return LayerNorm(num_features=self.embed_dim, bias=False)

    def own_specs(self) -> tuple[ParamSpec, ...]:
        return (
            ParamSpec(name="norm.weight", shape=(self.embed_dim,), init="ones", packable=False),
            *affine_params("in.", 2 * self.hidden_size, self.embed_dim, bias=True),
            ParamSpec(name="skip", shape=(self.hidden_size,), init="ones", packable=False),
            *affine_params("out.", self.embed_dim, self.hidden_size, bias=True),
            *self.join_params("gate."),
        )

    def reads(self, path: str, shape: Shape) -> Shape:
        return (*shape[:-1], self.hidden_size)

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, own_params(scope, self)
        with work.at(scope.path, mixes=False):
            wide = linear(work, p, ("in.",), emit_layer_norm(work, self.norm, p["norm.weight"], x))
            a, z = (columns(work, wide, at * self.hidden_size, self.hidden_size) for at in (0, 1))
            beside = work.unary(a, "silu")
        core = emit_inside(scope, CORE, self.core, beside if self.activates else a)
        with work.at(scope.path, mixes=False):
            whole = work.add(core, work.binary("mul", beside, p["skip"]))
            return join_nodes(
                work, self.gated, p, "gate.", x, linear(work, p, ("out.",), emit_gated(work, z, whole, "silu"))
            )
