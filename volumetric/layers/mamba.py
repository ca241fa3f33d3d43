"""Mamba: a selective state-space layer (https://arxiv.org/abs/2312.00752)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.graph.numeric.causal_conv import causal_conv, causal_conv_vjp, conv_state
from volumetric.graph.numeric.selective_scan import (
    Given,
    keep_last,
    scan_start,
    scan_state,
    selective_scan,
    selective_scan_vjp,
    softplus,
)
from volumetric.graph.state import StateSpec, covering, is_sequence
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.causal_conv import conv_params
from volumetric.layers.dense import affine, affine_params, affine_vjp
from volumetric.layers.scope import Scope


@layer("mamba")
class Mamba(LayerSpec):
    """``y = (scan(u) ⊙ silu(z)) Woᵀ`` with ``[v, z] = x Wiᵀ``, ``u = silu(conv(v))``, on rows ``[…, T, embed_dim]``.

    ``[r, b, c] = u Wxᵀ`` and ``dt = softplus(r Wdᵀ + bd)`` are the row's step, input and output of the scan

    ``s[t] = exp(dt ⊗ A) ⊙ s[t - 1] + (dt ⊙ u) ⊗ b``, ``scan(u)[t] = s[t] c + D ⊙ u`` with ``A = -exp(a_log)``

    (Gu & Dao 2023). ``conv`` is causal, of each channel on its own. A call goes on from two states of fixed size: the
    last ``kernel_size - 1`` rows of v, and s; resets of the memory forget both.

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
        expect_positive(self, "embed_dim", "inner_features", "state_size", "dt_rank", "kernel_size", "reach")

    @property
    def reach(self) -> int:
        """Rows before a row that the convolution sees."""
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

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept, keep = covering(memory, x.shape)
        lead, inner = x.shape[:-1], self.inner_features
        v, z = np.split(affine(p, "in.", x), 2, axis=-1)
        mixed, rows, seen = causal_conv(p["conv.weight"], p.get("conv.bias"), v, kept, keep)
        u = activate("silu", mixed)
        r, b, c = np.split(affine(p, "x.", u), np.cumsum(self.products)[:2], axis=-1)
        pre = affine(p, "dt.", r)
        given = self._as_heads(u, softplus(pre), p["a_log"], b, c)
        start = scan_start(kept, (len(given[0]), self.state_size, inner, 1), x)
        of = selective_scan(given, start, None if keep is None else keep.reshape(len(given[0]), -1))
        keep_last(kept, of.states, x)
        scanned = of.y.reshape(*lead, inner) + p["d"] * u
        gate = activate("silu", z)
        saved = {"x": x, "z": z, "rows": rows, "mixed": mixed, "u": u, "r": r, "pre": pre, "given": given, "of": of}
        gated = scanned * gate
        return affine(p, "out.", gated), {**saved, "seen": seen, "scanned": scanned, "gate": gate, "gated": gated}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        u, inner = saved["u"], self.inner_features
        g_gated = affine_vjp(p, "out.", saved["gated"], gy, params)
        g_z = g_gated * saved["scanned"] * slope("silu", saved["z"])
        g_scanned = g_gated * saved["gate"]
        x, _, a, *_ = saved["given"]
        of = selective_scan_vjp(saved["of"], saved["given"], g_scanned.reshape(x.shape))
        params["a_log"] = of.a * a
        params["d"] = (g_scanned * u).reshape(-1, inner).sum(0)
        g_pre = of.dt.reshape(u.shape) * sigmoid(saved["pre"])
        g_r = affine_vjp(p, "dt.", saved["r"], g_pre, params)
        g_products = [g_r, *(g.reshape(*u.shape[:-1], self.state_size) for g in (of.b, of.c))]
        g_u = of.x.reshape(u.shape) + p["d"] * g_scanned
        g_u = g_u + affine_vjp(p, "x.", u, np.concatenate(g_products, axis=-1), params)
        g_mixed = g_u * slope("silu", saved["mixed"])
        g_v, params["conv.weight"] = causal_conv_vjp(p["conv.weight"], saved["rows"], g_mixed, saved["seen"])
        if self.conv_bias:
            params["conv.bias"] = g_mixed.reshape(-1, inner).sum(0)
        gx = affine_vjp(p, "in.", saved["x"], np.concatenate([g_v, g_z], axis=-1), params)
        return Grads((gx,), params)

    def _as_heads(self, u: Array, dt: Array, a_log: Array, b: Array, c: Array) -> Given:
        """What the scan takes, with heads of one channel in one group."""
        length, size = u.shape[-2], self.state_size
        shapes = ((self.inner_features, 1), (self.inner_features,), (1, size), (1, size))
        x, dt, b, c = (part.reshape(-1, length, *shape) for part, shape in zip((u, dt, b, c), shapes, strict=True))
        return Given(x, dt, -np.exp(a_log), b, c)

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.state_space import emit_mamba  # which imports this module

        return emit_mamba(scope, self, x)
