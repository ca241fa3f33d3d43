"""In NumPy: xLAttention: attention over a row and a bounded memory of rows before it, by distance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covering, start_of
from tests.oracles.projections import run_map, run_map_back
from volumetric.base._typing import Array
from volumetric.graph.numeric.softmax import softmax, softmax_vjp
from volumetric.graph.operations.linear_scan import run_linear_scan
from volumetric.layers.xl_attention import XLAttention


class Window(NamedTuple):
    """What attention of a window reads.

    Attributes
    ----------
    q, k, v : ``[B, heads, T or memory + T, head_dim]``
    r : codes of distances ``memory`` … 0, ``[heads, memory + 1, head_dim]``
    seen : ``[B, 1, T, memory + T]``
    """

    q: Array
    k: Array
    v: Array
    r: Array
    seen: Array


@oracle_of(XLAttention)
class XLAttentionOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        *lead, length, _ = x.shape
        covered, keep = covering(memory, x.shape)
        start = {n: start_of(covered, n, (*lead, *s), x.dtype) for n, s in self.shapes.items()}
        before = {n: start[n].reshape(-1, *s) for n, s in self.shapes.items()}
        rows = x.reshape(-1, length, self.embed_dim)
        batch = len(rows)
        kept = None if keep is None else keep.reshape(batch, length)
        count = run_linear_scan(np.ones((batch, length, 1), x.dtype), np.ones(1, x.dtype), before["age"], kept)
        apart = self.distances(length)
        seen = (apart >= 0) & (apart <= self.memory) & (apart < count)
        saved: Saved = {"x": x, "rows": rows}
        if self.maps:
            made = {n: run_map(self.maps, n, p, x, covered, saved).reshape(batch, length, -1) for n in self.maps}
        else:
            made = {n: affine(p, f"{n}.", rows) for n in ("q", "k", "v")}
        k, v = (np.concatenate([before[n], made[w]], 1) for n, w in (("keys", "k"), ("values", "v")))
        if covered is not None and length:
            shown = seen[:, -1, length:, None]
            ends = {n: np.where(shown, of[:, length:], x.dtype.type(0)) for n, of in (("keys", k), ("values", v))}
            ends["age"] = np.minimum(count[:, -1], x.dtype.type(self.memory))
            for name, end in ends.items():
                covered.write(name, end.reshape(start[name].shape))
        codes = self.codes().astype(x.dtype)
        r = affine(p, "r.", codes).reshape(-1, *self.by_head).swapaxes(0, 1)
        of = Window(self._heads(made["q"]), self._heads(k), self._heads(v), r, seen[:, None])
        found, weights = self._attend(p, of)
        joined = found.swapaxes(1, 2).reshape(*lead, length, self.inner)
        saved |= {"of": of, "weights": weights, "joined": joined, "codes": codes}
        return affine(p, "o.", joined), saved

    def _attend(self, p: Arrays, of: Window) -> tuple[Array, Array]:
        scale = of.q.dtype.type(self.by_head[1] ** -0.5)
        logits = (of.q + p["content_bias"][:, None]) @ of.k.swapaxes(-1, -2)
        by_distance = (of.q + p["position_bias"][:, None]) @ of.r.swapaxes(-1, -2)
        for t in range(of.q.shape[2]):
            logits[..., t, t : t + self.memory + 1] += by_distance[..., t, :]
        odd = np.sum(of.v * 0, axis=-1)[:, :, None]  # NaN goes through weights, so that it is not where it is not seen
        logits = np.where(of.seen, logits * scale + odd, logits.dtype.type(-np.inf))
        weights = softmax(logits)
        return weights @ np.where(np.isfinite(of.v), of.v, of.v.dtype.type(0)), weights

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        of, weights, rows = saved["of"], saved["weights"], saved["rows"]
        batch, length, _ = rows.shape
        g = affine_vjp(p, "o.", saved["joined"], gy, params).reshape(batch, length, self.inner)
        g = self._heads(g)
        g_v = weights.swapaxes(-1, -2) @ g
        g_logits = softmax_vjp(weights, g @ of.v.swapaxes(-1, -2)) * g.dtype.type(self.by_head[1] ** -0.5)
        by_distance = np.zeros((*g_logits.shape[:3], self.memory + 1), g.dtype)
        for t in range(length):
            by_distance[..., t, :] = g_logits[..., t, t : t + self.memory + 1]
        g_content, g_position = g_logits @ of.k, by_distance @ of.r
        params["content_bias"], params["position_bias"] = g_content.sum((0, 2)), g_position.sum((0, 2))
        g_k = g_logits.swapaxes(-1, -2) @ (of.q + p["content_bias"][:, None])
        g_r = np.sum(by_distance.swapaxes(-1, -2) @ (of.q + p["position_bias"][:, None]), axis=0)
        affine_vjp(p, "r.", saved["codes"], g_r.swapaxes(0, 1).reshape(-1, self.inner), params)
        parts = {"q": g_content + g_position, "k": g_k[:, :, self.memory :], "v": g_v[:, :, self.memory :]}
        gx = np.zeros_like(rows)
        for name, part in parts.items():
            joined = part.swapaxes(1, 2).reshape(batch, length, self.inner)
            if self.maps:
                g = joined.reshape(*saved["x"].shape[:-1], self.inner)
                gx = gx + run_map_back(self.maps, name, p, saved, g, params).reshape(gx.shape)
            else:
                gx = gx + affine_vjp(p, f"{name}.", rows, joined, params)
        return Grads((gx.reshape(saved["x"].shape),), params)

    def _heads(self, x: Array) -> Array:
        """``[B, n, heads · d]`` as ``[B, heads, n, d]``."""
        return x.reshape(*x.shape[:2], *self.by_head).swapaxes(1, 2)
