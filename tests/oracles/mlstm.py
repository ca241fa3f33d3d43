"""In NumPy: mLSTM: a memory of matrices with exponential gates (xLSTM, Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.head_norm import head_norm, head_norm_vjp
from tests.oracles.memory import Memory, covering, start_of
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from tests.oracles.projections import run_map, run_map_back
from volumetric.base._typing import Array
from volumetric.formula.cells import EPS
from volumetric.graph.numeric.activations import activate, sigmoid, slope
from volumetric.layers.mlstm import MLSTM, MOST


def log_sigmoid(x: Array) -> Array:
    """``log σ(x)``, which neither overflows nor loses small values."""
    return -np.logaddexp(x.dtype.type(0), -x)


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


@oracle_of(MLSTM)
class MLSTMOracle(Oracle):
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


def _held(states: Held, keep: Array | None, t: int) -> Held:
    """States as step `t` finds them: zeros, whatever they are, where ``keep [..., T]`` is 0."""
    if keep is None:
        return states
    now = keep[..., t] != 0
    return Held(*(np.where(now.reshape(*now.shape, *(1,) * (s.ndim - now.ndim)), s, s.dtype.type(0)) for s in states))
