"""Adapter: a narrow block after a layer, initially the identity (Houlsby et al. 2019, arXiv 1902.00751)."""

from __future__ import annotations

from typing import Literal, get_args

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_spec import ParamSpec, expect_last, expect_positive, layer
from volumetric.layers.mlp import MLP
from volumetric.layers.norm import LayerNorm
from volumetric.layers.scaffolds.scaffold import CORE, Scaffold, emit_inside, emit_layer_norm, own_params

AdapterActivation = Literal["gelu", "silu", "relu"]


@layer("adapter")
class Adapter(Scaffold):
    """A narrow residual block behind a layer, on rows ``[…, embed_dim]``.

    ::

        h = core(x)
        y = h + g ⊙ (W₂ act(W₁ norm(h) + b₁) + b₂)

    The core is an already trained layer. It can stay frozen (``TrainConfig(frozen=("*/core/*",))``). A new adapter has
    W₂ = 0 and g = 1. So it passes h on unchanged, and W₂ learns from the first update on. With g = 0 as well, neither
    would ever have a gradient.

    Houlsby et al. 2019 (arXiv 1902.00751).

    Attributes
    ----------
    embed_dim : width of the core's output
    bottleneck : width between the products
    activation : ``"gelu"``, ``"silu"`` or ``"relu"``
    per_channel : g is a vector; else one number
    core : the layer inside, such as a trained scaffold that stays as it is
    """

    embed_dim: int
    bottleneck: int = 64
    activation: AdapterActivation = "gelu"
    per_channel: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        Scaffold.__post_init__(self)
        expect_positive(self, "embed_dim", "bottleneck")
        if self.activation not in get_args(AdapterActivation):
            known = ", ".join(get_args(AdapterActivation))
            raise SpecError(f"adapter: unknown activation {self.activation!r}", hint=f"one of {known}")

    @property
    def norm(self) -> LayerNorm:
        """The norm before the block."""
        return LayerNorm(num_features=self.embed_dim)

    @property
    def block(self) -> MLP:
        """The narrow block."""
        return MLP(in_features=self.embed_dim, hidden_features=self.bottleneck, activation=self.activation, bias=True)

    def own_specs(self) -> tuple[ParamSpec, ...]:
        width = self.embed_dim
        return (
            ParamSpec(name="norm.weight", shape=(width,), init="ones", packable=False),
            ParamSpec(name="norm.bias", shape=(width,), init="zeros", packable=False),
            *affine_params("down.", self.bottleneck, width, bias=True),
            *affine_params("up.", width, self.bottleneck, bias=True, init="zeros"),
            ParamSpec(name="gate", shape=(width if self.per_channel else 1,), init="ones", packable=False),
        )

    def output_shape(self, *inputs: Shape) -> Shape:
        shape = Scaffold.output_shape(self, *inputs)
        expect_last(self, shape, self.embed_dim)
        return shape

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, own_params(scope, self)
        h = emit_inside(scope, CORE, self.core, x)
        with work.at(scope.path, mixes=False):
            read = emit_layer_norm(work, self.norm, p["norm.weight"], h, p["norm.bias"])
            change = linear(work, p, ("up.",), linear(work, p, ("down.",), read, activation=self.activation))
            return work.add(h, work.binary("mul", change, p["gate"]))
