"""mLSTM: a memory of matrices with exponential gates (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.graph.numeric.causal_conv import causal_conv, causal_conv_vjp, conv_state
from volumetric.graph.numeric.slstm_cell import EPS, log_sigmoid
from volumetric.graph.state import StateSpec, covering, is_sequence, start_of
from volumetric.layers.base import (
    Arrays,
    Grads,
    Init,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
    rows,
)
from volumetric.layers.causal_conv import conv_params
from volumetric.layers.dense import affine, affine_vjp
from volumetric.layers.head_norm import head_norm, head_norm_params, head_norm_vjp
from volumetric.layers.projections import (
    Maps,
    Projection,
    axon_map,
    check_projection,
    map_params,
    map_states,
    run_map,
    run_map_back,
)
from volumetric.layers.scope import Scope
from volumetric.layers.slstm import check_heads

MOST = 80.0
"""Bound of -m in the least divisor, so that float32 holds it; what is divided by that much is nothing."""


_FRESH: dict[str, Init] = {"i/weight": "zeros", "i/bias": "normal_tenth", "f/weight": "zeros", "f/bias": "forget"}
"""Gates that remember begin as those that do not."""


class Held(NamedTuple):
    """The states of a step: matrices ``[…, heads, d, d]``, normaliser ``[…, heads, d]``, scale ``[…, heads]``."""

    c: Array
    n: Array
    m: Array


class Row(NamedTuple):
    """What a step reads: queries, keys / √d and values ``[…, heads, d]``, gates ``[…, heads]``."""

    q: Array
    k: Array
    v: Array
    i: Array
    f: Array


def step(of: Row, before: Held) -> tuple[Array, Held]:
    """Return y ``[…, heads, d]`` and the states after a step."""
    passed = log_sigmoid(of.f) + before.m
    m = np.maximum(passed, of.i)
    f, i = np.exp(passed - m), np.exp(of.i - m)
    kept = (i[..., None] * of.k)[..., :, None] * of.v[..., None, :]
    c = f[..., None, None] * before.c + kept
    n = f[..., None] * before.n + i[..., None] * of.k
    return _read(of.q, c, n, m)[0], Held(c, n, m)


def _read(q: Array, c: Array, n: Array, m: Array) -> tuple[Array, Array, Array, Array]:
    """Y, its divisor, and the two numbers of which the divisor is the larger."""
    along = np.sum(q * n, axis=-1)
    least = np.exp(np.minimum(-m, m.dtype.type(MOST)))
    whole = np.maximum(np.abs(along), least) + m.dtype.type(EPS)
    return np.sum(q[..., :, None] * c, axis=-2) / whole[..., None], whole, along, least


def step_back(of: Row, before: Held, after: Held, gy: Array, g: Held) -> tuple[Row, Held]:
    """Return the gradients of what a step reads, and of the states before it."""
    y, whole, along, least = _read(of.q, *after)
    g_read = gy / whole[..., None]
    g_whole = -np.sum(gy * y, axis=-1) / whole
    inner = np.abs(along) >= least
    g_along = np.where(inner, g_whole * np.sign(along), 0)
    g_q = np.sum(after.c * g_read[..., None, :], axis=-1) + after.n * g_along[..., None]
    g_c = g.c + of.q[..., :, None] * g_read[..., None, :]
    g_n = g.n + of.q * g_along[..., None]
    g_m = g.m - np.where(inner | (-after.m > MOST), 0, g_whole * least)
    passed = log_sigmoid(of.f) + before.m
    f, i = np.exp(passed - after.m), np.exp(of.i - after.m)
    by_v = np.sum(g_c * of.v[..., None, :], axis=-1) + g_n
    by_i = i * np.sum(by_v * of.k, axis=-1)
    by_f = f * (np.sum(g_c * before.c, axis=(-2, -1)) + np.sum(g_n * before.n, axis=-1))
    rest = g_m - by_i - by_f
    larger = passed >= of.i
    g_i, g_passed = by_i + np.where(larger, 0, rest), by_f + np.where(larger, rest, 0)
    g_v = i[..., None] * np.sum(g_c * of.k[..., :, None], axis=-2)
    read = Row(g_q, i[..., None] * by_v, g_v, g_i, g_passed * (1 - sigmoid(of.f)))
    return read, Held(f[..., None, None] * g_c, f[..., None] * g_n, g_passed)


@layer("mlstm")
class MLSTM(LayerSpec):
    """``y = qᵀC / max(|qᵀn|, exp(-m))`` with ``C = f C + i k vᵀ / √d`` and ``n = f n + i k / √d``, on ``[…, T, E]``.

    By heads of d channels, with ``q = k = silu(conv(x))``, ``v = x``, and one gate each a head,
    ``[ĩ, f̃] = W [q, k, v] + b``. They are divided by the largest so far, whose logarithm is the state m:

    ``m = max(ĩ, m[t - 1] + log σ(f̃))``, ``i = exp(ĩ - m)``, ``f = exp(m[t - 1] + log σ(f̃) - m)``

    (Beck et al. 2024). 1e-6 is added to the divisor; y is normalised head by head, with a gain and no bias. A call goes
    on from the states C, n and m and the last rows that the convolution saw, and forgets them where the memory's resets
    say so; in the VJP they are constants. Devices compute windows in chunks of rows as products of matrices.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : heads, which divide the width
    kernel_size : rows that the convolution sees
    chunk_size : rows that devices compute at once; the same numbers up to rounding. Beyond 64, float32 loses digits
    projection : ``"axon"``: an `AxonLinear` makes each gate, another one, behind SiLU, ``q = k`` of the convolution's
        output, and a fourth v of x
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    embed_dim: int
    num_heads: int = 4
    kernel_size: int = 4
    chunk_size: int = 64
    projection: Projection = "dense"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_heads(self, self.embed_dim, self.num_heads)
        check_projection(self, self.projection)
        expect_positive(self, "kernel_size", "chunk_size")

    @property
    def by_head(self) -> tuple[int, int]:
        """Heads, and the width of one."""
        return self.num_heads, self.embed_dim // self.num_heads

    @property
    def maps(self) -> Maps:
        """What makes queries and keys, values and gates that remember."""
        if self.projection == "dense":
            return {}
        inner, gate = axon_map(self.embed_dim, self.embed_dim), axon_map(3 * self.embed_dim, self.num_heads)
        return {"qk": inner, "v": inner, "i": gate, "f": gate}

    def params(self) -> tuple[ParamSpec, ...]:
        heads, wide = self.num_heads, 3 * self.embed_dim
        conv, norm = (
            conv_params("conv.", self.embed_dim, self.kernel_size, bias=True),
            head_norm_params(self.embed_dim),
        )
        if self.maps:
            return *conv, *map_params(self.maps, _FRESH), *norm
        return (
            *conv,
            ParamSpec(name="i.weight", shape=(heads, wide), init="zeros"),
            ParamSpec(name="i.bias", shape=(heads,), init="normal_tenth", packable=False),
            ParamSpec(name="f.weight", shape=(heads, wide), init="zeros"),
            ParamSpec(name="f.bias", shape=(heads,), init="forget", packable=False),
            *norm,
        )

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not is_sequence(*inputs):
            return ()
        heads, width = self.by_head
        conv = (conv_state(self.embed_dim, self.kernel_size),) if self.kernel_size > 1 else ()
        shapes = {"C": (heads, width, width), "n": (heads, width), "m": (heads,)}
        own = (StateSpec(name=name, shape=shape, kind="fixed") for name, shape in shapes.items())
        return *conv, *own, *map_states(self.maps, *inputs)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        (heads, width), length = self.by_head, x.shape[-2]
        covered, keep = covering(memory, x.shape)
        conv = causal_conv(p["conv.weight"], p["conv.bias"], x, covered if self.kernel_size > 1 else None, keep)
        q, v, before_q = activate("silu", conv.y), x, None
        saved: Saved = {"x": x, "keep": keep, "conv": conv}
        if self.maps:
            before_q, v = (run_map(self.maps, n, p, of, covered, saved) for n, of in (("qk", q), ("v", x)))
            q = activate("silu", before_q)
        joined = np.concatenate([q, q, v], axis=-1)
        if self.maps:
            i, f = (run_map(self.maps, name, p, joined, covered, saved) for name in ("i", "f"))
        else:
            i, f = affine(p, "i.", joined), affine(p, "f.", joined)
        scale = x.dtype.type(1 / np.sqrt(width))
        parts = [part.reshape(*x.shape[:-1], heads, width) for part in (q, q * scale, v)]
        held = self._start(covered, x)
        tape: list[tuple[Row, Held, Held]] = []
        ys = np.empty_like(parts[0])
        for t in range(length):
            now = [part[..., t, :, :] for part in parts]
            of = Row(now[0], now[1], now[2], i[..., t, :], f[..., t, :])
            before = _held(held, keep, t)
            ys[..., t, :, :], held = step(of, before)
            tape.append((of, before, held))
        if covered is not None:
            for name, value in zip(("C", "n", "m"), held, strict=True):
                covered.write(name, value)
        y, normal = head_norm(ys.reshape(x.shape), p["norm.weight"], heads)
        return y, {**saved, "before_q": before_q, "joined": joined, "tape": tape, "normal": normal}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        x, keep, conv = saved["x"], saved["keep"], saved["conv"]
        (heads, width), scale = self.by_head, x.dtype.type(1 / np.sqrt(self.by_head[1]))
        g_y = head_norm_vjp(p["norm.weight"], saved["normal"], gy, params).reshape(*x.shape[:-1], heads, width)
        g = Held(*(np.zeros_like(value) for value in self._start(None, x)))
        whole, gate = np.empty_like(g_y), np.empty_like(g_y[..., 0])
        read = Row(whole, whole.copy(), whole.copy(), gate, gate.copy())
        for t in reversed(range(x.shape[-2])):
            of, before, after = saved["tape"][t]
            found, g = step_back(of, before, after, g_y[..., t, :, :], g)
            g = _held(g, keep, t)
            for every, part in zip(read, found, strict=True):
                every[(..., t, *(slice(None),) * (part.ndim - x.ndim + 2))] = part
        gates = (("i", read.i), ("f", read.f))
        if self.maps:
            back = [run_map_back(self.maps, name, p, saved, of, params) for name, of in gates]
        else:
            back = [affine_vjp(p, f"{name}.", saved["joined"], of, params) for name, of in gates]
        by_q, by_k, by_v = np.split(back[0] + back[1], 3, axis=-1)
        g_q = by_q + by_k + (read.q + read.k * scale).reshape(x.shape)
        g_v = by_v + read.v.reshape(x.shape)
        if self.maps:
            g_v = run_map_back(self.maps, "v", p, saved, g_v, params)
            g_q = run_map_back(self.maps, "qk", p, saved, g_q * slope("silu", saved["before_q"]), params)
        g_conv = g_q * slope("silu", conv.y)
        gx, params["conv.weight"] = causal_conv_vjp(p["conv.weight"], conv.rows, g_conv, conv.seen)
        params["conv.bias"] = rows(g_conv).sum(0)
        return Grads((gx + g_v,), params)

    def _start(self, memory: Memory | None, x: Array) -> Held:
        """States before the first step."""
        (heads, width), lead = self.by_head, x.shape[:-2]
        shapes = {"C": (*lead, heads, width, width), "n": (*lead, heads, width), "m": (*lead, heads)}
        return Held(*(start_of(memory, name, shape, x.dtype) for name, shape in shapes.items()))

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.mlstm import emit_mlstm  # which imports this module

        return emit_mlstm(scope, self, x)


def _held(states: Held, keep: Array | None, t: int) -> Held:
    """States as step `t` finds them: zeros, whatever they are, where ``keep [..., T]`` is 0."""
    if keep is None:
        return states
    now = keep[..., t] != 0
    return Held(*(np.where(now.reshape(*now.shape, *(1,) * (s.ndim - now.ndim)), s, s.dtype.type(0)) for s in states))
