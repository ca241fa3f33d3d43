"""ShortConv: LFM2's operator, a gated causal convolution over a few rows (https://arxiv.org/abs/2511.23404)."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv as emit_causal_conv
from volumetric.layers.causal_conv import conv_params, conv_state
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, columns, emit_gated, linear
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("short_conv")
class ShortConv(LayerSpec):
    """A gated convolution over the last few rows of a sequence, on ``[T, embed_dim]`` or ``[B, T, embed_dim]``.

    ::

        [b, c, v] = x Wiᵀ
        y = (c ⊙ conv(b ⊙ v)) Woᵀ

    ``conv`` is causal and acts on each channel separately. A row sees itself and the ``kernel_size − 1`` rows before
    it. These rows are the whole state of a sequence.

    It is the operator of LFM2 (arXiv 2511.23404), in ten of sixteen layers of its models.

    Attributes
    ----------
    embed_dim : width of input and output
    kernel_size : rows that the convolution sees, 2 or more
    bias : whether projections and convolution have biases
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int = positional()
    kernel_size: int = positional(default=3)
    bias: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "embed_dim", "kernel_size", "past_rows")

    @property
    def past_rows(self) -> int:
        """Number of earlier rows that a row sees."""
        return self.kernel_size - 1

    def params(self) -> tuple[ParamSpec, ...]:
        width = self.embed_dim
        return (
            *affine_params("in.", 3 * width, width, bias=self.bias),
            *conv_params("conv.", width, self.kernel_size, bias=self.bias),
            *affine_params("out.", width, width, bias=self.bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        return (conv_state(self.embed_dim, self.kernel_size),) if is_sequence(*inputs) else ()

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        with work.at(scope.path, mixes=False):
            wide = linear(work, p, ("in.",), x)
            b, c, v = (columns(work, wide, i * self.embed_dim, self.embed_dim) for i in range(3))
            product = emit_gated(work, b, v, "linear")
        mixed = emit_causal_conv(scope, product, p["conv.weight"], p.get("conv.bias"))
        with work.at(scope.path, mixes=False):
            return linear(work, p, ("out.",), emit_gated(work, c, mixed, "linear"))
