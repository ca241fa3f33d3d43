"""Mamba: a selective state-space layer (https://arxiv.org/abs/2312.00752)."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv, conv_params, conv_state
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, columns, linear
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.selective_scan import ColumnRange, SelectiveScanEmitter, scan_state


@layer("mamba")
class Mamba(LayerSpec):
    """A selective state-space layer, on rows ``[…, T, embed_dim]``.

    ::

        [v, z] = x Wiᵀ
        u = silu(conv(v))
        [r, b, c] = u Wxᵀ
        dt = softplus(r Wdᵀ + bd)
        s[t] = exp(dt[t] ⊗ A) ⊙ s[t − 1] + (dt[t] ⊙ u[t]) ⊗ b[t]        A = −exp(a_log)
        y[t] = ((s[t] c[t] + D ⊙ u[t]) ⊙ silu(z[t])) Woᵀ

    Each channel has a state of `state_size` numbers. They decay, take in the row and are read out, by factors that
    depend on the row. ``conv`` is causal and acts on each channel separately. The state of a sequence is the last
    ``kernel_size − 1`` rows of v, and s. Its size does not depend on the length. Resets clear both.

    On CPU and GPU devices the scan of a call is one operation on its rows, beside packed products. Nothing of the size
    rows × channels × elements is stored. Training writes it as a ``linear_scan``, whose gradient is also one.

    Gu & Dao 2023 (arXiv 2312.00752).

    Attributes
    ----------
    embed_dim : width of input and output
    inner_features : channels of the scan
    state_size : elements of the state of a channel
    dt_rank : width of r
    kernel_size : rows that the convolution sees, 2 or more
    bias : whether Wi and Wo have biases
    conv_bias : whether the convolution has one
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int
    inner_features: int
    state_size: int = 16
    dt_rank: int = 1
    kernel_size: int = 4
    bias: bool = False
    conv_bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "embed_dim", "inner_features", "state_size", "dt_rank", "kernel_size", "past_rows")

    @property
    def past_rows(self) -> int:
        """Number of earlier rows that the convolution sees."""
        return self.kernel_size - 1

    @property
    def products(self) -> tuple[int, int, int]:
        """Widths of r, b and c."""
        return self.dt_rank, self.state_size, self.state_size

    def params(self) -> tuple[ParamSpec, ...]:
        inner = self.inner_features
        return (
            *affine_params("in.", 2 * inner, self.embed_dim, bias=self.bias),
            *conv_params("conv.", inner, self.kernel_size, bias=self.conv_bias),
            *affine_params("x.", sum(self.products), inner, bias=False),
            *affine_params("dt.", inner, self.dt_rank, bias=False),
            ParamSpec(name="dt.bias", shape=(inner,), init="small_steps", packable=False),
            ParamSpec(name="a_log", shape=(inner, self.state_size), init="log_counts", packable=False),
            ParamSpec(name="d", shape=(inner,), init="ones", packable=False),
            *affine_params("out.", self.embed_dim, inner, bias=self.bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        inner = self.inner_features
        return conv_state(inner, self.kernel_size), scan_state(self.state_size, inner)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p, inner = scope.work, scope.params(self), self.inner_features
        with work.at(scope.path, mixes=False):
            wide = linear(work, p, ("in.",), x)
        u = causal_conv(scope, wide, p["conv.weight"], p.get("conv.bias"), activation="silu")
        with work.at(scope.path, mixes=False):
            products = linear(work, p, ("x.",), u)
            dt = linear(work, p, ("dt.",), columns(work, products, 0, self.dt_rank))
        scan = SelectiveScanEmitter(
            heads=inner,
            size=self.state_size,
            x=ColumnRange(u),
            dt=ColumnRange(dt),
            b=ColumnRange(products, self.dt_rank),
            c=ColumnRange(products, self.dt_rank + self.state_size),
            z=ColumnRange(wide, inner),
            a_log=p["a_log"],
            d=p["d"],
        )
        y = scan.emit(scope)
        with work.at(scope.path, mixes=False):
            return linear(work, p, ("out.",), y)
