"""Mamba2: a selective state-space layer with one decay per head (https://arxiv.org/abs/2405.21060)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv, conv_params, conv_state
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, as_rows, columns, emit_gated, linear
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.selective_scan import ColumnRange, SelectiveScanEmitter, scan_state


@layer("mamba2")
class Mamba2(LayerSpec):
    """A selective state-space layer with one decay for each head of channels, on rows ``[…, T, embed_dim]``.

    ::

        [z, w, r] = x Wiᵀ
        [v, b, c] = silu(conv(w))
        dt = clip(softplus(r + dt_bias), dt_min, dt_max)
        s[t] = exp(dt[t] A) s[t − 1] + dt[t] b[t] ⊗ v[t]                 for each head; A = −exp(a_log), one number
        y[t] = norm((c[t] · s[t] + D v[t]) ⊙ silu(z[t])) Woᵀ

    The heads of a group share b and c. ``conv`` is causal and acts on each channel separately. Falcon-H1's layers omit
    the norm, or put it before the gate, and have fixed factors on the outputs of Wi (`multipliers`). The state of a
    sequence is the last ``kernel_size − 1`` rows of w, and s. Its size does not depend on the length.

    Dao & Gu 2024 (arXiv 2405.21060).

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads of the scan
    head_dim : channels of a head
    state_size : elements of the state of a channel
    groups : sets of b and c; they divide the heads, and the norm is over each group's channels
    kernel_size : rows that the convolution sees, 2 or more
    bias, out_bias : whether Wi and Wo have biases
    conv_bias : whether the convolution has one
    norm : whether there is a norm (rms, over a group) before Wo
    norm_eps : added to the mean of squares
    norm_before_gate : ``norm(scan(v)) ⊙ silu(z)`` instead
    dt_min, dt_max : bounds of dt; None: no upper one
    multipliers : factors on the outputs z, v, b, c and r of Wi (Falcon-H1)
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int
    num_heads: int
    head_dim: int
    state_size: int = 128
    groups: int = 1
    kernel_size: int = 4
    bias: bool = False
    out_bias: bool = False
    conv_bias: bool = True
    norm: bool = True
    norm_eps: float = 1e-5
    norm_before_gate: bool = False
    dt_min: float = 0.0
    dt_max: float | None = None
    multipliers: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        """Check the fields."""
        positive = ("embed_dim", "num_heads", "head_dim", "state_size", "groups", "kernel_size", "past_rows")
        expect_positive(self, *positive)
        if self.num_heads % self.groups:
            raise SpecError(f"mamba2: {self.groups} groups do not divide {self.num_heads} heads")
        object.__setattr__(self, "multipliers", tuple(map(float, self.multipliers)))
        if len(self.multipliers) != 5 or not np.isfinite(self.multipliers).all():
            raise SpecError(f"mamba2: multipliers must be five numbers, for z, v, b, c and r, got {self.multipliers}")
        if not 0 <= self.dt_min <= (np.inf if self.dt_max is None else self.dt_max):
            raise SpecError(f"mamba2: dt cannot be between {self.dt_min} and {self.dt_max}")

    @property
    def past_rows(self) -> int:
        """Number of earlier rows that the convolution sees."""
        return self.kernel_size - 1

    @property
    def inner(self) -> int:
        """Channels of the scan."""
        return self.num_heads * self.head_dim

    @property
    def group_width(self) -> int:
        """Width of b and of c."""
        return self.groups * self.state_size

    @property
    def conv_width(self) -> tuple[int, int, int]:
        """Widths of v, b and c, which the convolution sees."""
        return self.inner, self.group_width, self.group_width

    @property
    def projected_width(self) -> tuple[int, int, int]:
        """Widths of z, w and r."""
        return self.inner, sum(self.conv_width), self.num_heads

    @property
    def gated_last(self) -> bool:
        """Whether the gate comes after a norm."""
        return self.norm and self.norm_before_gate

    @property
    def conv_factors(self) -> tuple[tuple[int, float], ...]:
        """(Number of channels, factor) of consecutive channels of the convolution; empty if all factors are 1."""
        runs = tuple(zip(self.conv_width, self.multipliers[1:4], strict=True))
        return runs if any(factor != 1 for _, factor in runs) else ()

    def params(self) -> tuple[ParamSpec, ...]:
        heads = self.num_heads
        gain = ParamSpec(name="norm.weight", shape=(self.inner,), init="ones", packable=False)
        return (
            *affine_params("in.", sum(self.projected_width), self.embed_dim, bias=self.bias),
            *conv_params("conv.", sum(self.conv_width), self.kernel_size, bias=self.conv_bias),
            ParamSpec(name="dt_bias", shape=(heads,), init="small_steps", packable=False),
            ParamSpec(name="a_log", shape=(heads,), init="log_counts", packable=False),
            ParamSpec(name="d", shape=(heads,), init="ones", packable=False),
            *((gain,) if self.norm else ()),
            *affine_params("out.", self.embed_dim, self.inner, bias=self.out_bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        return conv_state(sum(self.conv_width), self.kernel_size), scan_state(self.state_size, self.inner)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        work, p, inner = scope.work, scope.params(self), self.inner
        with work.at(scope.path, mixes=False):
            wide = linear(work, p, ("in.",), x)
        bias = p.get("conv.bias")
        mixed = causal_conv(
            scope, wide, p["conv.weight"], bias, start=inner, activation="silu", factors=self.conv_factors
        )
        z = ColumnRange(wide)
        late = self.gated_last
        scan = SelectiveScanEmitter(
            heads=self.num_heads,
            head_dim=self.head_dim,
            groups=self.groups,
            size=self.state_size,
            x=ColumnRange(mixed),
            dt=ColumnRange(wide, sum(self.projected_width[:2])),
            b=ColumnRange(mixed, inner),
            c=ColumnRange(mixed, inner + self.group_width),
            z=None if late else z,
            a_log=p["a_log"],
            d=p["d"],
            dt_bias=p["dt_bias"],
            dt_factor=self.multipliers[4],
            z_factor=self.multipliers[0],
            dt_min=self.dt_min,
            dt_max=self.dt_max,
        )
        y = scan.emit(scope)
        with work.at(scope.path, mixes=False):
            if self.norm:
                y = _norm_groups(scope, self, y, p["norm.weight"])
            if late:
                gate = columns(work, *z, inner)
                factor = self.multipliers[0]
                y = emit_gated(work, work.affine(gate, factor), y, "silu")
            return linear(work, p, ("out.",), y)


def _norm_groups(scope: Scope, spec: Mamba2, y: int, gain: int) -> int:
    """Emit the norm of each group of channels."""
    work, shape = scope.work, scope.work.shape(y)
    if spec.groups == 1:
        return work.reshape(work.norm(as_rows(work, y), gain, kind="rms", eps=spec.norm_eps), shape)
    rows = as_rows(work, y)
    apart = work.reshape(rows, (work.shape(rows)[0] * spec.groups, spec.inner // spec.groups))
    normal = work.norm(apart, kind="rms", eps=spec.norm_eps)
    return work.binary("mul", work.reshape(normal, shape), gain)
