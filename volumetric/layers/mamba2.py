"""Mamba2: a selective state-space layer with one decay a head (https://arxiv.org/abs/2405.21060)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.graph.numeric.causal_conv import causal_conv, causal_conv_vjp, conv_state
from volumetric.graph.numeric.norms import rms_norm, rms_norm_vjp
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


@layer("mamba2")
class Mamba2(LayerSpec):
    """``y = norm(scan(v) ⊙ silu(z)) Woᵀ`` with ``[z, w, r] = x Wiᵀ``, ``[v, b, c] = silu(conv(w))``, on ``[…, T, n]``.

    With ``dt = clip(softplus(r + dt_bias), dt_min, dt_max)`` a head of channels scans

    ``s[t] = exp(dt A) s[t - 1] + dt b ⊗ v``, ``scan(v)[t] = c · s[t] + D v`` with ``A = -exp(a_log)``

    where b and c belong to groups of heads (Dao & Gu 2024). ``conv`` is causal, of each channel on its own. A call goes
    on from two states of fixed size: the last ``kernel_size - 1`` rows of w, and s.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads, head_dim : heads of the scan, and their channels
    state_size : elements of the state of a channel
    groups : sets of b and c; they divide the heads, and the norm is over each group's channels
    kernel_size : rows that the convolution sees, 2 or more
    bias, out_bias : whether Wi and Wo have biases
    conv_bias : whether the convolution has one
    norm : whether there is a norm (rms, over a group) before Wo
    norm_eps : is added to the mean of squares
    norm_before_gate : ``norm(scan(v)) ⊙ silu(z)`` instead
    dt_min, dt_max : bounds of dt; None: no upper one
    multipliers : factors on z, v, b, c and r as they come out of Wi (Falcon-H1)
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
        positive = ("embed_dim", "num_heads", "head_dim", "state_size", "groups", "kernel_size", "reach")
        expect_positive(self, *positive)
        if self.num_heads % self.groups:
            raise SpecError(f"mamba2: {self.num_heads} heads cannot be shared out to {self.groups} groups")
        object.__setattr__(self, "multipliers", tuple(map(float, self.multipliers)))
        if len(self.multipliers) != 5 or not np.isfinite(self.multipliers).all():
            raise SpecError(f"mamba2: multipliers are five numbers, of z, v, b, c and r, got {self.multipliers}")
        if not 0 <= self.dt_min <= (np.inf if self.dt_max is None else self.dt_max):
            raise SpecError(f"mamba2: dt cannot lie between {self.dt_min} and {self.dt_max}")

    @property
    def reach(self) -> int:
        """Rows before a row that the convolution sees."""
        return self.kernel_size - 1

    @property
    def inner(self) -> int:
        """Channels of the scan."""
        return self.num_heads * self.head_dim

    @property
    def grouped(self) -> int:
        """Width of b, and of c."""
        return self.groups * self.state_size

    @property
    def mixed(self) -> tuple[int, int, int]:
        """Widths of v, b and c, which the convolution sees."""
        return self.inner, self.grouped, self.grouped

    @property
    def projected(self) -> tuple[int, int, int]:
        """Widths of z, w and r."""
        return self.inner, sum(self.mixed), self.num_heads

    @property
    def gated_last(self) -> bool:
        """Whether the gate comes behind a norm."""
        return self.norm and self.norm_before_gate

    @property
    def conv_factors(self) -> tuple[tuple[int, float], ...]:
        """Channels of the convolution in order, and the factor of each run of them; nothing where all are 1."""
        runs = tuple(zip(self.mixed, self.multipliers[1:4], strict=True))
        return runs if any(factor != 1 for _, factor in runs) else ()

    def params(self) -> tuple[ParamSpec, ...]:
        heads = self.num_heads
        gain = ParamSpec(name="norm.weight", shape=(self.inner,), init="ones", packable=False)
        return (
            *affine_params("in.", sum(self.projected), self.embed_dim, bias=self.bias),
            *conv_params("conv.", sum(self.mixed), self.kernel_size, bias=self.conv_bias),
            ParamSpec(name="dt_bias", shape=(heads,), init="small_steps", packable=False),
            ParamSpec(name="a_log", shape=(heads,), init="log_counts", packable=False),
            ParamSpec(name="d", shape=(heads,), init="ones", packable=False),
            *((gain,) if self.norm else ()),
            *affine_params("out.", self.embed_dim, self.inner, bias=self.out_bias),
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        return conv_state(sum(self.mixed), self.kernel_size), scan_state(self.state_size, self.inner)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        kept, keep = covering(memory, x.shape)
        z, w, r = np.split(affine(p, "in.", x), np.cumsum(self.projected)[:2], axis=-1)
        z, r = z * x.dtype.type(self.multipliers[0]), r * x.dtype.type(self.multipliers[4])
        weight = p["conv.weight"] * self._factors(x)
        mixed, rows, seen = causal_conv(weight, p.get("conv.bias"), w, kept, keep)
        pre = r + p["dt_bias"]
        open_dt = softplus(pre)
        v, b, c = np.split(activate("silu", mixed), np.cumsum(self.mixed)[:2], axis=-1)
        given = self._as_heads(v, np.clip(open_dt, self.dt_min, self.dt_max), p["a_log"], b, c)
        heads = given[0]
        start = scan_start(kept, (len(heads), self.state_size, self.num_heads, self.head_dim), x)
        of = selective_scan(given, start, None if keep is None else keep.reshape(len(heads), -1))
        keep_last(kept, of.states, x)
        scanned = (of.y + p["d"][:, None] * heads).reshape(z.shape)
        gate = activate("silu", z)
        normal, more = self._normed(p, scanned if self.gated_last else scanned * gate)
        ready = normal * gate if self.gated_last else normal
        saved = {"x": x, "z": z, "w": w, "rows": rows, "mixed": mixed, "pre": pre, "open_dt": open_dt, "given": given}
        saved |= {"of": of, "seen": seen, "scanned": scanned, "gate": gate, "normal": normal, "ready": ready, **more}
        return affine(p, "out.", ready), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        scanned, gate, z = saved["scanned"], saved["gate"], saved["z"]
        g = affine_vjp(p, "out.", saved["ready"], gy, params)
        if self.gated_last:
            g_gate, g_scanned = g * saved["normal"], self._norm_vjp(p, saved, g * gate, params)
        else:
            g = self._norm_vjp(p, saved, g, params)
            g_gate, g_scanned = g * scanned, g * gate
        g_z = g_gate * slope("silu", z) * self.multipliers[0]
        heads, _, a, *_ = saved["given"]
        by_head = g_scanned.reshape(heads.shape)
        of = selective_scan_vjp(saved["of"], saved["given"], by_head)
        params["a_log"] = (of.a * a)[:, 0]
        params["d"] = (by_head * heads).sum((0, 1, 3))
        most = np.inf if self.dt_max is None else self.dt_max
        inside = (saved["open_dt"] >= self.dt_min) & (saved["open_dt"] <= most)
        g_pre = of.dt.reshape(inside.shape) * inside * sigmoid(saved["pre"])
        params["dt_bias"] = g_pre.reshape(-1, self.num_heads).sum(0)
        lead = z.shape[:-1]
        g_v = of.x + p["d"][:, None] * by_head
        g_mixed = np.concatenate([part.reshape(*lead, -1) for part in (g_v, of.b, of.c)], axis=-1)
        g_mixed = g_mixed * slope("silu", saved["mixed"])
        factors = self._factors(gy)
        g_w, g_weight = causal_conv_vjp(p["conv.weight"] * factors, saved["rows"], g_mixed, saved["seen"])
        params["conv.weight"] = g_weight * factors
        if self.conv_bias:
            params["conv.bias"] = g_mixed.reshape(-1, sum(self.mixed)).sum(0)
        g_in = np.concatenate([g_z, g_w, g_pre * self.multipliers[4]], axis=-1)
        return Grads((affine_vjp(p, "in.", saved["x"], g_in, params),), params)

    def _factors(self, like: Array) -> Array:
        """Factors on the weights of the convolution, ``[channels, 1, 1]``: on its input they would be in its state."""
        return np.repeat(np.array(self.multipliers[1:4], like.dtype), self.mixed)[:, None, None]

    def _normed(self, p: Arrays, x: Array) -> tuple[Array, Saved]:
        if not self.norm:
            return x, {}
        parts = x.reshape(*x.shape[:-1], self.groups, -1)
        y, scale = rms_norm(parts, p["norm.weight"].reshape(self.groups, -1), self.norm_eps)
        return y.reshape(x.shape), {"parts": parts, "scale": scale}

    def _norm_vjp(self, p: Arrays, saved: Saved, g: Array, params: dict[str, Array]) -> Array:
        if not self.norm:
            return g
        parts, scale = saved["parts"], saved["scale"]
        by_group = g.reshape(parts.shape)
        gain = p["norm.weight"].reshape(self.groups, -1)
        gx, _ = rms_norm_vjp(parts, gain, scale, by_group)
        params["norm.weight"] = (by_group * parts * scale).reshape(-1, self.inner).sum(0)
        return gx.reshape(g.shape)

    def _as_heads(self, v: Array, dt: Array, a_log: Array, b: Array, c: Array) -> Given:
        """What the scan takes."""
        length = v.shape[-2]
        group = (self.groups, self.state_size)
        shapes = ((self.num_heads, self.head_dim), (self.num_heads,), group, group)
        v, dt, b, c = (part.reshape(-1, length, *shape) for part, shape in zip((v, dt, b, c), shapes, strict=True))
        return Given(v, dt, -np.exp(a_log)[:, None], b, c)

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.state_space import emit_mamba2  # which imports this module

        return emit_mamba2(scope, self, x)
