"""In NumPy: multi-head attention with everything that current decoders vary: grouped keys, RoPE, head norms,."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.dense import affine, affine_vjp
from tests.oracles.memory import Memory, covered_by
from tests.oracles.numeric.norms import rms_norm_vjp
from volumetric.base._typing import Array
from volumetric.graph.numeric.attention_mask import attention_mask, temperature
from volumetric.graph.numeric.norms import rms_norm, without_mean
from volumetric.graph.numeric.rope import rotate
from volumetric.graph.numeric.softmax import softmax_vjp
from volumetric.graph.operations.rowwise import softmax_with_sinks
from volumetric.graph.state_spec import bounded_states
from volumetric.layers.attention import MultiHeadAttention


@oracle_of(MultiHeadAttention)
class MultiHeadAttentionOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        memory = covered_by(memory, x.shape)
        places = np.arange(x.shape[-2]) if memory is None else memory.places(x.shape, wraps=self._wraps)
        saved: Saved = {"x": x, "places": places, "turns": places}
        q = self._project(p, "q", x, self.num_heads, saved)
        k = self._project(p, "k", x, self.kv_heads, saved)
        v = self._heads(affine(p, "v.", x), self.kv_heads)
        if memory is not None and memory.bounded and self.causal:
            k, v = self._held(memory, "k", k, places), self._held(memory, "v", v, places)
            before = k.shape[-3] - x.shape[-2]
            saved["turns"] = before + np.arange(x.shape[-2])  # scores go by distances alone, so any start will do
            q, k = self._turned(q, saved["turns"]), self._turned(k, np.arange(k.shape[-3]))
        else:
            q, k = self._turned(q, places), self._turned(k, places)
            if memory is not None and self.causal:
                k, v = memory.append("k", k), memory.append("v", v)
        q = q * self._warmth(places, q) if self.temperature_scale else q
        scores, saved["capped"] = self._scores(q, k)
        seen = self._seen(places, k.shape[-3], None if memory is None else memory.resets)
        if memory is not None and memory.restarts:
            # In products NaN would come through rows that are not seen: it goes through their scores instead.
            scores = scores + _spread(np.sum(v * 0, axis=-1, keepdims=True), self.num_heads).swapaxes(-1, -2)
            v = np.where(np.isfinite(v), v, v.dtype.type(0))
        scores = np.where(seen, scores, scores.dtype.type(-np.inf))
        saved |= {"q": q, "k": k, "v": v}
        sinks = p["sinks"] if self.sinks else None
        probs = softmax_with_sinks(scores, sinks)
        joined = self._join(probs @ _spread(v, self.num_heads))
        saved |= {"probs": probs, "joined": joined}
        return affine(p, "o.", joined), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_heads = self._heads(affine_vjp(p, "o.", saved["joined"], gy, params), self.num_heads).swapaxes(-3, -2)
        v = _spread(saved["v"], self.num_heads)
        g_probs = g_heads @ v.swapaxes(-1, -2)
        g_scores = softmax_vjp(saved["probs"], g_probs)
        if self.sinks:
            # The sink's own weight is what the others leave of 1, and nothing reads it.
            rest = (1 - saved["probs"].sum(-1)) * -(g_probs * saved["probs"]).sum(-1)
            params["sinks"] = np.moveaxis(rest, -2, -1).reshape(-1, self.num_heads).sum(0)
        if self.softcap is not None:
            g_scores = g_scores * (1 - np.square(saved["capped"]))
        g_scores = g_scores * g_scores.dtype.type(self.factor)
        gq = (g_scores @ _spread(saved["k"], self.num_heads)).swapaxes(-3, -2)
        gk = _gather(g_scores.swapaxes(-1, -2) @ saved["q"].swapaxes(-3, -2), self.kv_heads)
        gv = _gather(saved["probs"].swapaxes(-1, -2) @ g_heads, self.kv_heads)
        held = gk.shape[-3] - saved["x"].shape[-2]
        gk, gv = gk[..., held:, :, :], gv[..., held:, :, :]
        gx = self._project_vjp(p, "q", gq, saved, params) + self._project_vjp(p, "k", gk, saved, params)
        gx = gx + affine_vjp(p, "v.", saved["x"], gv.reshape(*gv.shape[:-2], -1), params)
        return Grads((gx,), params)

    def _heads(self, x: Array, heads: int) -> Array:  # [..., T, heads * width] -> [..., T, heads, width]
        return x.reshape(*x.shape[:-1], heads, self.width)

    def _join(self, heads: Array) -> Array:  # [..., H, T, width] -> [..., T, H * width]
        swapped = heads.swapaxes(-3, -2)
        return swapped.reshape(*swapped.shape[:-2], -1)

    def _gain(self, p: Arrays, name: str, like: Array) -> Array:
        if not self.qk_norm_gain:
            return np.ones(self.width, like.dtype)
        gain = p[f"{name}_norm.weight"]
        gain = gain.reshape(-1, self.width) if self.qk_norm_over == "each" else gain
        return gain + 1 if self.qk_norm_unit_offset else gain

    @property
    def _wraps(self) -> int | None:
        """Positions that are so many apart compute alike; None: none do."""
        return None if self.temperature_scale else self.chunk

    def _held(self, memory: Memory, name: str, new: Array, places: Array) -> Array:
        """Put rows behind those of a bounded state, which takes the last ones of their sequence; return all."""
        lead, rows = new.shape[:-3], new.shape[-3]
        shape = next(spec.shape for spec in bounded_states(self.states(), self.kind) if spec.name == name)
        whole = np.concatenate([memory.read(name, (*lead, *shape), new.dtype), new], -3)
        if rows:
            own = np.arange(shape[0])[::-1] <= places[..., -1:]
            memory.write(name, np.where(own[..., None, None], whole[..., rows:, :, :], new.dtype.type(0)))
        return whole

    def _project(self, p: Arrays, name: str, x: Array, heads: int, saved: Saved) -> Array:
        y = affine(p, name + ".", x)
        if not self.qk_norm or self.qk_norm_over != "all":
            y = self._heads(y, heads)
        if self.qk_norm:
            # A LayerNorm without bias is the RMSNorm of what is left without the mean.
            y = without_mean(y) if self.qk_norm_kind == "layer" else y
            saved[name + "_raw"] = y
            y, saved[name + "_scale"] = rms_norm(y, self._gain(p, name, y), self.qk_norm_eps)
            y = y.reshape(*x.shape[:-1], heads, self.width)
        return y

    def _turned(self, y: Array, positions: Array) -> Array:
        return y if self.rope is None else rotate(self.rope, y, positions)

    def _warmth(self, places: Array, like: Array) -> Array:
        """Factors of queries, ``[T, 1, 1]`` or ``[…, T, 1, 1]``, in the type of `like`."""
        factors = temperature(places, self.temperature_scale, self.temperature_every)
        return factors.astype(like.dtype)[..., None, None]

    def _project_vjp(self, p: Arrays, name: str, g: Array, saved: Saved, params: dict[str, Array]) -> Array:
        if name == "q" and self.temperature_scale:
            g = g * self._warmth(saved["places"], g)
        if self.rope is not None:
            g = rotate(self.rope, g, saved["turns"], back=True)
        if self.qk_norm:
            gain = self._gain(p, name, g)
            g = g.reshape(saved[name + "_raw"].shape)
            normal = saved[name + "_raw"] * saved[name + "_scale"]
            g_own = (g * normal).reshape(-1, gain.size).sum(0) if self.qk_norm_over == "each" else None
            g, g_gain = rms_norm_vjp(saved[name + "_raw"], gain, saved[name + "_scale"], g)
            g = g - g.mean(-1, keepdims=True) if self.qk_norm_kind == "layer" else g
            if self.qk_norm_gain:
                params[f"{name}_norm.weight"] = g_gain if g_own is None else g_own
        return affine_vjp(p, name + ".", saved["x"], g.reshape(*saved["x"].shape[:-1], -1), params)

    def _scores(self, q: Array, k: Array) -> tuple[Array, Array | None]:
        """Return scores ``[..., H, T, S]``, and tanh of the scaled ones where a soft cap applies."""
        keys = _spread(k, self.num_heads).swapaxes(-1, -2)
        scores = (q.swapaxes(-3, -2) @ keys) * q.dtype.type(self.factor)
        capped = None
        if self.softcap is not None:
            capped = np.tanh(scores / scores.dtype.type(self.softcap))
            scores = capped * scores.dtype.type(self.softcap)
        return scores, capped

    def _seen(self, places: Array, every: int, resets: Array | None) -> Array:
        """Return which rows see which of the last `every` rows of all, bool ``[T, S]`` or ``[..., 1, T, S]``."""
        rows = np.arange(places.shape[-1])
        there = places[..., None] - (rows[:, None] - np.arange(len(rows) - every, len(rows)))
        seen = attention_mask(places, there, causal=self.causal, window=self.window, chunk=self.chunk)
        if self.causal:
            seen &= there >= 0
        elif resets is not None:
            begun = np.cumsum(resets, -1)
            seen = seen & (begun[..., None] == begun[..., None, :])
        return seen if seen.ndim == 2 else seen[..., None, :, :]


def _spread(kv: Array, heads: int) -> Array:
    """Give every query head its key/value head: ``[..., S, KV, width] -> [..., H, S, width]``."""
    return np.repeat(kv.swapaxes(-3, -2), heads // kv.shape[-2], axis=-3)


def _gather(grad: Array, kv_heads: int) -> Array:
    """Sum over the query heads of each group, the transpose of `_spread`: ``[..., H, S, w] -> [..., S, KV, w]``."""
    *lead, heads, length, width = grad.shape
    return grad.reshape(*lead, kv_heads, heads // kv_heads, length, width).sum(-3).swapaxes(-3, -2)
