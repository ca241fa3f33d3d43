"""Multi-head attention with everything that current decoders vary: grouped keys, RoPE, head norms, windows, soft caps.

Vaswani et al. 2017 (arXiv 1706.03762); grouped queries: Ainslie et al. 2023 (arXiv 2305.13245); sliding window: Mistral
(arXiv 2310.06825); normalised queries and keys: Qwen3 (arXiv 2505.09388); soft cap: Gemma 2 (arXiv 2408.00118); sinks:
gpt-oss (arXiv 2508.10925).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError
from volumetric.graph.numeric.attention import seen_rows, softmax_with_sinks, temperature
from volumetric.graph.numeric.norms import rms_norm, rms_norm_vjp, without_mean
from volumetric.graph.numeric.rope import Rope, rotate
from volumetric.graph.numeric.softmax import softmax_vjp
from volumetric.graph.state import StateSpec, bounded, covered_by, is_sequence
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
from volumetric.layers.dense import affine, affine_params, affine_vjp
from volumetric.layers.scope import Scope


@layer("multi_head_attention")
class MultiHeadAttention(LayerSpec):
    """Attention over the rows of a sequence; a causal layer remembers keys and values from call to call.

    ``y = softmax(scale · rope(norm(q)) rope(norm(k))ᵀ + mask) v Woᵀ + bo`` for each head, heads side by side. Where a
    sequence begins anew, as the memory's resets say, rows from there on see none of those before, their positions count
    from 0, and nothing of what is not seen comes through, NaN neither. In the VJP rows of earlier calls are constants.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads, num_kv_heads : query heads, and key/value heads that they share in groups (None: as many)
    head_dim : width of a head (None: embed_dim / num_heads); need not divide embed_dim
    qkv_bias, out_bias : whether the projections have biases
    rope : rotary embedding of queries and keys, or None
    causal : a row sees only itself and earlier rows
    window : a row sees rows less than `window` away, itself included; before it if causal, else on both sides
    chunk : a row sees rows of its own chunk alone, of so many from the first on (Llama 4); for causal layers
    softcap : bound c on scores, ``c · tanh(s / c)``, before the mask
    sinks : whether each head has a trained logit that joins its softmax and has no value, so that weights may sum to
        less than 1
    scale : factor on scores (None: 1/√head_dim)
    temperature_scale, temperature_every : queries of position p are multiplied by ``1 + temperature_scale · log(1 +
        ⌊(p + 1) / temperature_every⌋)``, which keeps attention sharp over long sequences (Scalable-Softmax, arXiv
        2501.19399; Llama 4); 0: they are not
    qk_norm : normalise queries and keys before RoPE, with gains of their own
    qk_norm_gain : whether there are gains; without them it is the same before and behind RoPE (Llama 4)
    qk_norm_kind : how: an RMSNorm, or a LayerNorm without bias
    qk_norm_over : what is normalised: each "head", with one gain for all (Qwen3); "each" head, with its own gain
        (Command R+, StableLM 2 12B); or "all" heads together (OLMo 2)
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True
    ends_with_context: ClassVar[bool] = True

    embed_dim: int
    num_heads: int
    num_kv_heads: int | None = None
    head_dim: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    rope: Rope | None = None
    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: bool = False
    scale: float | None = None
    temperature_scale: float = 0.0
    temperature_every: int = 8192
    qk_norm: bool = False
    qk_norm_gain: bool = True
    qk_norm_kind: Literal["rms", "layer"] = "rms"
    qk_norm_over: Literal["head", "each", "all"] = "head"
    qk_norm_eps: float = 1e-6
    qk_norm_unit_offset: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "embed_dim", "num_heads", "kv_heads", "width")
        if self.num_heads % self.kv_heads:
            raise SpecError(f"{self.kind}: {self.num_heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim is None and self.embed_dim % self.num_heads:
            raise SpecError(f"{self.kind}: embed_dim {self.embed_dim} does not divide into {self.num_heads} heads")
        if self.rope is not None and self.rope.dim > self.width:
            raise SpecError(f"{self.kind}: rope turns {self.rope.dim} elements of a head of {self.width}")
        if self.window is not None:
            expect_positive(self, "window")
        if self.chunk is not None:
            expect_positive(self, "chunk")
            if not self.causal:
                raise SpecError(f"{self.kind}: rows that see both ways cannot be chunked", hint="window= bounds them")
        if self.qk_norm_kind not in ("rms", "layer"):
            raise SpecError(f"{self.kind}: qk_norm_kind must be 'rms' or 'layer', got {self.qk_norm_kind!r}")
        if self.qk_norm_over not in ("head", "each", "all"):
            raise SpecError(f"{self.kind}: qk_norm_over must be 'head', 'each' or 'all', got {self.qk_norm_over!r}")
        if not self.qk_norm_gain and (self.qk_norm_over == "all" or self.qk_norm_unit_offset):
            raise SpecError(f"{self.kind}: a norm of all heads, and one with a unit offset, has gains")
        if not 0 <= self.temperature_scale < math.inf:
            raise SpecError(f"{self.kind}: temperature_scale must be a number from 0 on, got {self.temperature_scale}")
        expect_positive(self, "temperature_every")
        if self.softcap is not None and not self.softcap > 0:
            raise SpecError(f"{self.kind}: softcap must be above 0, got {self.softcap}")

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def width(self) -> int:
        """Elements of a head."""
        return self.embed_dim // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def factor(self) -> float:
        """Factor on scores."""
        return 1 / math.sqrt(self.width) if self.scale is None else self.scale

    @property
    def two_way(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on a field)
        """Whether rows see those after them."""
        return not self.causal

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not self.causal or not is_sequence(*inputs):
            return ()  # a bidirectional layer sees the rows of its own call, all at once
        row = (self.kv_heads, self.width)
        window = min((size for size in (self.window, self.chunk) if size is not None), default=None)
        return tuple(StateSpec(name=name, shape=row, kind="rows", window=window) for name in ("k", "v"))

    def within(self, context: int) -> MultiHeadAttention:
        return self if self.rope is None else replace(self, rope=self.rope.within(context))

    def params(self) -> tuple[ParamSpec, ...]:
        q, kv = self.num_heads * self.width, self.kv_heads * self.width
        norms: tuple[ParamSpec, ...] = ()
        if self.qk_norm and self.qk_norm_gain:
            init = "zeros" if self.qk_norm_unit_offset else "ones"
            widths = (self.width, self.width) if self.qk_norm_over == "head" else (q, kv)
            pairs = zip(("q_norm.weight", "k_norm.weight"), widths, strict=True)
            norms = tuple(ParamSpec(name=n, shape=(width,), init=init, packable=False) for n, width in pairs)
        sinks = (ParamSpec(name="sinks", shape=(self.num_heads,), init="zeros", packable=False),) if self.sinks else ()
        return (
            *affine_params("q.", q, self.embed_dim, bias=self.qkv_bias),
            *affine_params("k.", kv, self.embed_dim, bias=self.qkv_bias),
            *affine_params("v.", kv, self.embed_dim, bias=self.qkv_bias),
            *affine_params("o.", self.embed_dim, q, bias=self.out_bias),
            *norms,
            *sinks,
        )

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.embed_dim)
        return inputs[0]

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
        shape = next(spec.shape for spec in bounded(self.states(), self.kind) if spec.name == name)
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
        seen = seen_rows(places, there, causal=self.causal, window=self.window, chunk=self.chunk)
        if self.causal:
            seen &= there >= 0
        elif resets is not None:
            begun = np.cumsum(resets, -1)
            seen = seen & (begun[..., None] == begun[..., None, :])
        return seen if seen.ndim == 2 else seen[..., None, :, :]

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.attention import emit_multi_head_attention  # which imports this module

        return emit_multi_head_attention(scope, self, x)


def _spread(kv: Array, heads: int) -> Array:
    """Give every query head its key/value head: ``[..., S, KV, width] -> [..., H, S, width]``."""
    return np.repeat(kv.swapaxes(-3, -2), heads // kv.shape[-2], axis=-3)


def _gather(grad: Array, kv_heads: int) -> Array:
    """Sum over the query heads of each group, the transpose of `_spread`: ``[..., H, S, w] -> [..., S, KV, w]``."""
    *lead, heads, length, width = grad.shape
    return grad.reshape(*lead, kv_heads, heads // kv_heads, length, width).sum(-3).swapaxes(-3, -2)
