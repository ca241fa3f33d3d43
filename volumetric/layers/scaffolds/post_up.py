"""PostUp: a core, then a widened feed-forward block (Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_spec import ParamSpec, layer
from volumetric.layers.mlp import MLP
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.scaffold import (
    CORE,
    WideningScaffold,
    emit_inside,
    emit_layer_norm,
    join_nodes,
    own_params,
)


@layer("post_up")
class PostUp(WideningScaffold):
    """A core on rows ``[…, embed_dim]``, then a feed-forward block, both in residual paths.

    ::

        h = x + core(norm₁(x))                       norms: layer norms with a gain alone
        y = h + W₂ silu(W₁ norm₂(h) + b₁) + b₂

    Beck et al. 2024 (arXiv 2405.04517).

    Attributes
    ----------
    factor : width of the hidden rows as a multiple of embed_dim, rounded down
    embed_dim : width of input and output
    core : the layer inside, from rows of this width to such rows
    """

    factor: float = 1.5

    @property
    def norm(self) -> LayerNorm:
        """The norm before core and block."""
        return LayerNorm(num_features=self.embed_dim, bias=False)

    @property
    def block(self) -> MLP:
        """The feed-forward block."""
        return MLP(in_features=self.embed_dim, hidden_features=self.hidden_size, activation="silu", bias=True)

    def own_specs(self) -> tuple[ParamSpec, ...]:
        gains = (
            ParamSpec(name=f"norm{i}.weight", shape=(self.embed_dim,), init="ones", packable=False) for i in (1, 2)
        )
        up = affine_params("up.", self.hidden_size, self.embed_dim, bias=True)
        down = affine_params("down.", self.embed_dim, self.hidden_size, bias=True)
        return *gains, *up, *down, *self.join_params("gate1."), *self.join_params("gate2.")

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, own_params(scope, self)
        with work.at(scope.path, mixes=False):
            first = emit_layer_norm(work, self.norm, p["norm1.weight"], x)
        core = emit_inside(scope, CORE, self.core, first)
        with work.at(scope.path, mixes=False):
            h = join_nodes(work, self.gated, p, "gate1.", x, core)
            hidden = linear(
                work, p, ("up.",), emit_layer_norm(work, self.norm, p["norm2.weight"], h), activation="silu"
            )
            return join_nodes(work, self.gated, p, "gate2.", h, linear(work, p, ("down.",), hidden))
