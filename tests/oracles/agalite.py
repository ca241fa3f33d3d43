"""In NumPy: aGaLiTe: a gated linear transformer whose attention is approximated (Pramanik et al. 2023, arXiv."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering, start_of
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import sigmoid
from volumetric.graph.operations.linear_scan import run_linear_scan, run_linear_scan_back
from volumetric.layers.agalite import AGaLiTe


class Heads(NamedTuple):
    """What rows are projected to: ``[…, heads, d]`` and, of `p`, three times ``[…, heads, η]``."""

    k: Array
    q: Array
    v: Array
    beta: Array
    gamma: Array
    p: tuple[Array, Array, Array]


@oracle_of(AGaLiTe)
class AGaLiTeOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        lead, length = x.shape[:-2], x.shape[-2]
        covered, keep = covering(memory, x.shape)
        start = {n: start_of(covered, n, (*lead, *s), x.dtype) for n, s in self.shapes.items()}
        rows = x.reshape(-1, length, self.embed_dim)
        batch = len(rows)
        begun = {n: start[n].reshape(batch, *s) for n, s in self.shapes.items()}
        kept = None if keep is None else keep.reshape(batch, length)
        of = self._heads(p, rows)
        ticks = run_linear_scan(np.ones((batch, length, 1), x.dtype), np.ones(1, x.dtype), begun["tick"], kept)
        ticks = ticks - self.period * np.floor(ticks / self.period)
        o = self.phases().astype(x.dtype)[np.where(ticks == ticks, ticks, 0).astype(np.int64)[..., 0]]  # [B, T, r]
        o = np.concatenate([o, np.ones_like(o[..., :1])], -1)[..., None, None]
        keys, queries, decay = self._features(of)
        a_k, u_k = 1 - decay, keys * decay
        beta = sigmoid(of.beta)
        first_k = np.concatenate([begun["tilde_k"], begun["s"][:, None]], 1)
        sums = run_linear_scan(o * u_k[:, :, None], a_k[:, :, None], first_k, kept)  # [B, T, r + 1, heads, features]
        a_v, u_v = 1 - beta, of.v * beta
        values = run_linear_scan(o[:, :, :-1] * u_v[:, :, None], a_v[:, :, None], begun["tilde_v"], kept)
        if covered is not None and length:
            ends = {"tilde_k": sums[:, -1, :-1], "tilde_v": values[:, -1], "s": sums[:, -1, -1], "tick": ticks[:, -1]}
            for name, end in ends.items():
                covered.write(name, end.reshape(start[name].shape).copy())
        met = np.sum(sums * queries[:, :, None], axis=-1, keepdims=True)  # [B, T, r + 1, heads, 1]
        whole = 2 * self.r * met[:, :, -1] + x.dtype.type(self.eps)
        read = np.sum(values * met[:, :, :-1], axis=2) / whole
        flat = read.reshape(x.shape)
        saved = {"x": x, "of": of, "o": o, "sums": sums, "values": values, "met": met, "whole": whole, "read": read}
        saved |= {"first": (first_k, begun["tilde_v"]), "keep": kept}
        return affine(p, "out.", flat), {**saved, "flat": flat}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        of, o, keep, whole = saved["of"], saved["o"], saved["keep"], saved["whole"]
        sums, values, met = saved["sums"], saved["values"], saved["met"]
        keys, queries, decay = self._features(of)
        beta, (first_k, first_v) = sigmoid(of.beta), saved["first"]
        g_read = affine_vjp(p, "out.", saved["flat"], gy, params).reshape(saved["read"].shape) / whole
        g_met = np.sum(g_read[:, :, None] * values, axis=-1, keepdims=True)
        g_whole = -np.sum(g_read * saved["read"], axis=-1, keepdims=True)
        g_met = np.concatenate([g_met, (2 * self.r * g_whole)[:, :, None]], 2)
        g_queries = np.sum(g_met * sums, axis=2)
        g_k, a_k = _back(g_met * queries[:, :, None], (1 - decay)[:, :, None], sums, first_k, keep)
        g_v, a_v = _back(g_read[:, :, None] * met[:, :, :-1], (1 - beta)[:, :, None], values, first_v, keep)
        by_k, by_v = np.sum(o * g_k, axis=2), np.sum(o[:, :, :-1] * g_v, axis=2)
        g_decay = by_k * keys - a_k.sum(2)
        g_beta = (by_v * of.v - a_v.sum(2)) * beta * (1 - beta)
        q, p1, p2, p3 = np.maximum(of.q, 0), *(np.maximum(part, 0) for part in of.p[:2]), sigmoid(of.p[2])
        k, gamma = np.maximum(of.k, 0), sigmoid(of.gamma)
        g_k, g_p1 = _outer_back(by_k * decay, k, p1)
        g_q, g_p2 = _outer_back(g_queries, q, p2)
        g_gamma, g_p3 = _outer_back(g_decay, gamma, p3)
        parts = (g_k * (k > 0), g_q * (q > 0), by_v * beta, g_beta, g_gamma * gamma * (1 - gamma))
        wide = np.stack(parts, axis=-2).reshape(*saved["x"].shape[:-1], -1)
        small = np.stack((g_p1 * (p1 > 0), g_p2 * (p2 > 0), g_p3 * p3 * (1 - p3)), axis=-2)
        gx = affine_vjp(p, "kqvbg.", saved["x"], wide, params)
        gx = gx + affine_vjp(p, "p.", saved["x"], small.reshape(*saved["x"].shape[:-1], -1), params)
        return Grads((gx,), params)

    def _heads(self, p: Arrays, rows: Array) -> Heads:
        heads, width = self.by_head
        wide = affine(p, "kqvbg.", rows).reshape(*rows.shape[:-1], heads, 5, width)
        small = affine(p, "p.", rows).reshape(*rows.shape[:-1], heads, 3, self.eta)
        k, q, v, beta, gamma = (wide[..., at, :] for at in range(5))
        return Heads(k, q, v, beta, gamma, (small[..., 0, :], small[..., 1, :], small[..., 2, :]))

    def _features(self, of: Heads) -> tuple[Array, Array, Array]:
        """φ_k, φ_q and Γ, ``[B, T, heads, features]``."""
        k, q, p1, p2 = (np.maximum(part, 0) for part in (of.k, of.q, *of.p[:2]))
        return _outer(k, p1), _outer(q, p2), _outer(sigmoid(of.gamma), sigmoid(of.p[2]))


def _outer(a: Array, b: Array) -> Array:
    return (a[..., :, None] * b[..., None, :]).reshape(*a.shape[:-1], -1)


def _outer_back(g: Array, a: Array, b: Array) -> tuple[Array, Array]:
    apart = g.reshape(*a.shape, b.shape[-1])
    return np.sum(apart * b[..., None, :], axis=-1), np.sum(apart * a[..., :, None], axis=-2)


def _back(g: Array, a: Array, s: Array, first: Array, keep: Array | None) -> tuple[Array, Array]:
    """Gradients of what a `linear_scan` sums up and of its factors, from that of its sums."""
    a = np.broadcast_to(a, g.shape)
    back = run_linear_scan_back(g, a, keep)
    before = np.concatenate([first[:, None], s[:, :-1]], 1)
    if keep is not None:
        before = np.where(keep.reshape(*keep.shape, *(1,) * (s.ndim - 2)) != 0, before, before.dtype.type(0))
    return back, back * before
