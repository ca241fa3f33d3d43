"""Multi-head attention with the options of current decoders: grouped keys, RoPE, head norms, windows, soft caps.

Vaswani et al. 2017 (arXiv 1706.03762); grouped queries: Ainslie et al. 2023 (arXiv 2305.13245); sliding window: Mistral
(arXiv 2310.06825); normalised queries and keys: Qwen3 (arXiv 2505.09388); soft cap: Gemma 2 (arXiv 2408.00118); sinks:
gpt-oss (arXiv 2508.10925).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.attention_mask import attention_mask, temperature
from volumetric.graph.numeric.rope import Rope, rotation
from volumetric.graph.ops import HELD
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.attention_state import (
    AttentionMask,
    attention_past,
    clean_values,
    keep_last_rows,
    mask_of,
    places_in_sequence,
    temperature_factors,
)
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("multi_head_attention")
class MultiHeadAttention(LayerSpec):
    """Attention over the rows of a sequence, ``[N, …]`` of N rows or ``[B, N, …]`` of B sequences.

    ::

        q, k, v = x Wqᵀ + bq, x Wkᵀ + bk, x Wvᵀ + bv        split into heads
        s = scale · rope(norm(q)) rope(norm(k))ᵀ            scale = 1/√head_dim
        y = softmax(softcap(s) + mask) v, heads side by side, times Woᵀ + bo

    A row i attends to rows j ≤ i (`causal`), or to all. With a `window` w it attends to rows with |i − j| < w: itself
    and up to w − 1 before it, and if it is not causal up to w − 1 after it. Gemma 3 and vLLM count the same way. If a
    model's configuration means |i − j| ≤ w in both directions (ModernBERT in transformers), pass w + 1. With `chunk` c
    row i sees no row before ⌊i / c⌋ · c. A sink is one more logit in the softmax of a head, whose weight is dropped:
    ``e^(s_j) / (e^sink + Σ e^(s_k))``. RoPE rotates element i of a head together with element i + dim/2 by the angle
    position · base^(−2i/dim). `Rope.scaling` selects its scaling: ``linear``, ``llama3``, ``yarn``, ``dynamic``,
    ``longrope`` or ``proportional`` (``help(Rope)`` has the formulas).

    A causal layer stores keys and values from call to call, so a sequence may be split into several calls. In gradients
    rows of earlier calls are constants. After a reset, rows see no row before it, NaN included, and positions count
    from 0, as in a new sequence. If attention goes both ways, rows before the reset see none after it either. In a
    clocked network, whose state has a fixed size, a layer needs a `window` or a `chunk`.

    Vaswani et al. 2017 (arXiv 1706.03762); grouped queries arXiv 2305.13245; RoPE arXiv 2104.09864; sinks arXiv
    2508.10925.

    Attributes
    ----------
    embed_dim : width of input and output
    num_heads : query heads
    num_kv_heads : key/value heads, which groups of query heads share (None: as many as query heads)
    head_dim : width of a head (None: embed_dim / num_heads); need not divide embed_dim
    qkv_bias, out_bias : whether the projections have biases
    rope : rotary embedding of queries and keys, or None
    causal : a row sees only itself and earlier rows
    window : a row sees rows less than `window` away, itself included; before it if causal, else on both sides
    chunk : a row sees only rows of its own chunk; chunks have this many rows (Llama 4); for causal layers
    softcap : bound c on scores, ``c · tanh(s / c)``, before the mask
    sinks : whether each head has a trained logit without a value in its softmax, so that weights may sum to less than 1
    scale : factor on scores (None: 1/√head_dim)
    temperature_scale, temperature_every : queries of position p are multiplied by ``1 + temperature_scale · log(1 + ⌊(p
        + 1) / temperature_every⌋)``, which keeps attention sharp over long sequences (Scalable-Softmax, arXiv
        2501.19399; Llama 4); 0: they are not
    qk_norm : normalise queries and keys before RoPE, with their own gains
    qk_norm_gain : whether there are gains; without them it is the same before and behind RoPE (Llama 4)
    qk_norm_kind : an RMSNorm, or a LayerNorm without bias
    qk_norm_over : "head": each head is normalised, with one gain for all (Qwen3); "each": each head with its own gain
        (Command R+, StableLM 2 12B); "all": all heads together (OLMo 2)
    qk_norm_eps : added to the mean of squares, or to the variance
    qk_norm_unit_offset : the gain of these norms is 1 + w
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True
    ends_with_context: ClassVar[bool] = True

    embed_dim: int = positional()
    num_heads: int = positional()
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
            raise SpecError(
                f"{self.kind}: embed_dim {self.embed_dim} does not divide into {self.num_heads} heads",
                hint="the width of a head is embed_dim / num_heads: use a multiple of num_heads",
            )
        if self.rope is not None and self.rope.dim > self.width:
            raise SpecError(f"{self.kind}: rope.dim must be at most the head width {self.width}, got {self.rope.dim}")
        if self.window is not None:
            expect_positive(self, "window")
        if self.chunk is not None:
            expect_positive(self, "chunk")
            if not self.causal:
                raise SpecError(f"{self.kind}: chunk needs causal=True", hint="window= bounds rows that see both ways")
        if self.qk_norm_kind not in ("rms", "layer"):
            raise SpecError(f"{self.kind}: qk_norm_kind must be 'rms' or 'layer', got {self.qk_norm_kind!r}")
        if self.qk_norm_over not in ("head", "each", "all"):
            raise SpecError(f"{self.kind}: qk_norm_over must be 'head', 'each' or 'all', got {self.qk_norm_over!r}")
        if not self.qk_norm_gain and (self.qk_norm_over == "all" or self.qk_norm_unit_offset):
            raise SpecError(f"{self.kind}: qk_norm_over='all' and qk_norm_unit_offset need qk_norm_gain=True")
        if not 0 <= self.temperature_scale < math.inf:
            raise SpecError(f"{self.kind}: temperature_scale must be 0 or more, got {self.temperature_scale}")
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
        """Whether rows see later rows."""
        return not self.causal

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if not self.causal or not is_sequence(*inputs):
            return ()  # a bidirectional layer sees only the rows of its call, all at once
        row = (self.kv_heads, self.width)
        window = min((size for size in (self.window, self.chunk) if size is not None), default=None)
        return tuple(StateSpec(name=name, shape=row, kind="rows", window=window) for name in ("k", "v"))

    def for_context(self, context: int) -> MultiHeadAttention:
        return self if self.rope is None else replace(self, rope=self.rope.for_context(context))

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

    def emit(self, scope: Scope, x: int) -> int:

        work = scope.work
        if work.is_native("attend", (x, *scope.params(self).values())):
            return _attend_native(scope, self, x)
        rows = scope.as_sequences(x)
        q, k, v = (_heads(scope, self, name, rows) for name in ("q", "k", "v"))
        if work.shape(x)[0] and (attention_past(scope, self, x) is not None or scope.keep_mask(x) is not None):
            return _attend_resumed(scope, self, x, q, k, v)
        places = np.arange(work.shape(rows)[1])
        q, k = (_rotate_heads(work, self, i, places) for i in (q, k))
        if self.temperature_scale:
            factors = temperature(places, self.temperature_scale, self.temperature_every)
            q = work.binary("mul", q, work.constant(factors[:, None, None], "temperature"))
        visible = attention_mask(places, places, causal=self.causal, window=self.window, chunk=self.chunk)
        mask = None if visible.all() else work.constant(visible.astype(np.float64), "mask")
        return _attend(scope, self, x, q, k, v, AttentionMask(mask))


def _attend_resumed(scope: Scope, spec: MultiHeadAttention, x: int, q: int, k: int, v: int) -> int:
    """Emit attention of rows that continue from states, or of sequences that are reset within the call."""
    work, past = scope.work, attention_past(scope, spec, x)
    places = places_in_sequence(scope, x, past)
    length = work.shape(places)[1]
    if past is not None:
        k, v = work.concat((past.k, k), 1), work.concat((past.v, v), 1)
        keep_last_rows(scope, spec, past, places, (k, v))
    every = work.shape(k)[1]
    # Scores depend on distances alone, so RoPE may count positions from the first stored row in all sequences.
    q = _rotate_heads(work, spec, q, np.arange(every - length, every))
    k = _rotate_heads(work, spec, k, np.arange(every))
    if spec.temperature_scale:
        q = work.binary("mul", q, temperature_factors(work, spec, places))
    v, odd = clean_values(work, v)
    return _attend(scope, spec, x, q, k, v, AttentionMask(mask_of(scope, spec, x, places, every - length), odd))


def _rotate_heads(work: GraphBuilder, spec: MultiHeadAttention, rows: int, places: Array) -> int:
    if spec.rope is None:
        return rows
    cos, sin = rotation(spec.rope, places)
    return work.rope(rows, work.constant(cos, "cos"), work.constant(sin, "sin"))


def _attend_native(scope: Scope, spec: MultiHeadAttention, x: int) -> int:
    """Emit attention of the rows of a call over the stored rows of the sequence, as one node between two products."""
    work, p = scope.work, scope.params(spec)
    by_head = spec.qk_norm and spec.qk_norm_over != "all"
    with work.at(scope.path, mixes=False):
        if spec.qk_norm and not by_head:
            q, k = (_norm_heads(scope, spec, p, name, linear(work, p, (name + ".",), x)) for name in ("q", "k"))
            qkv = work.concat((q, k, linear(work, p, ("v.",), x)), 1)
        else:
            qkv = linear(work, p, ("q.", "k.", "v."), x)
    by_role = {"qkv": qkv, "positions": work.positions()}
    by_role |= {n: p[f"{n}.weight"] for n in ("q_norm", "k_norm") if by_head and spec.qk_norm_gain}
    if spec.sinks:
        by_role["sinks"] = p["sinks"]
    if spec.causal and scope.resumes:
        by_role |= {name: scope.state(name, (HELD, spec.kv_heads, spec.width)) for name in ("k", "v")}
    outputs = work.emit(
        "attend",
        tuple(by_role.values()),
        roles=tuple(by_role),
        heads=spec.num_heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.width,
        scale=spec.factor,
        causal=spec.causal,
        window=spec.window,
        chunk=spec.chunk,
        softcap=spec.softcap,
        temperature_scale=spec.temperature_scale,
        temperature_every=spec.temperature_every,
        qk_norm=spec.qk_norm_kind if by_head else None,
        own_gains=by_head and spec.qk_norm_gain and spec.qk_norm_over == "each",
        qk_norm_eps=spec.qk_norm_eps,
        qk_norm_unit_offset=spec.qk_norm_unit_offset,
        rope=spec.rope,
    )
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("o.",), outputs[0])


def _heads(scope: Scope, spec: MultiHeadAttention, name: Literal["q", "k", "v"], rows: int) -> int:
    """Emit queries, keys or values ``[B, T, heads, width]``; queries and keys are normalised."""
    work, p = scope.work, scope.params(spec)
    batch, length, _ = work.shape(rows)
    count, width = spec.num_heads if name == "q" else spec.kv_heads, spec.width
    y = linear(work, p, (name + ".",), rows)
    if name != "v" and spec.qk_norm:
        wide = count * width if spec.qk_norm_over == "all" else width
        y = _norm_heads(scope, spec, p, name, work.reshape(y, (batch * length * count * width // wide, wide)))
    return work.reshape(y, (batch, length, count, width))


def _norm_heads(scope: Scope, spec: MultiHeadAttention, p: Mapping[str, int], name: str, rows: int) -> int:
    """Emit the norm of queries or keys, over each head or over all heads."""
    work, kind, eps = scope.work, spec.qk_norm_kind, spec.qk_norm_eps
    if not spec.qk_norm_gain:
        return work.norm(rows, kind=kind, eps=eps)
    gain = p[f"{name}_norm.weight"]
    if spec.qk_norm_over != "each":
        return work.norm(rows, gain, kind=kind, eps=eps, unit_offset=spec.qk_norm_unit_offset)
    gain = work.affine(gain, 1.0, 1.0) if spec.qk_norm_unit_offset else gain
    every, width = work.shape(rows)
    count = work.shape(gain)[0] // width
    normal = work.reshape(work.norm(rows, kind=kind, eps=eps), (every // count, count, width))
    return work.reshape(work.binary("mul", normal, work.reshape(gain, (count, width))), (every, width))


def _attend(scope: Scope, spec: MultiHeadAttention, x: int, q: int, k: int, v: int, visibility: AttentionMask) -> int:
    """Emit attention of the queries ``[B, T, heads, width]`` over the keys and values ``[B, S, …]``, projected back.

    The output has the leading axes of `x`, the layer's input.
    """
    work = scope.work
    batch, length, _, width = work.shape(q)
    kv, every = spec.kv_heads, work.shape(k)[1]
    shared, groups = spec.num_heads // kv, batch * kv
    # Query heads that share a key head are the outer axis, so that keys and values repeat cyclically in the products.
    q = work.reshape(q, (batch, length, kv, shared, width))
    q = work.reshape(work.permute(q, (3, 0, 2, 1, 4)), (shared * groups, length, width))
    sinks = None
    if spec.sinks:
        own = work.permute(work.reshape(scope.params(spec)["sinks"], (kv, shared)), (1, 0))
        own = work.broadcast(work.reshape(own, (shared, 1, kv, 1)), (shared, batch, kv, length))
        sinks = work.reshape(own, (shared * groups, length, 1))
    k, v = (work.reshape(work.permute(i, (0, 2, 1, 3)), (groups, every, width)) for i in (k, v))
    scores = work.gemm(work.affine(q, spec.factor), k, trans_b=True)  # q has fewer elements than the scores
    if spec.softcap is not None:
        scores = work.affine(work.unary(work.affine(scores, 1 / spec.softcap), "tanh"), spec.softcap)
    if visibility.odd is not None:
        odd = work.reshape(work.permute(visibility.odd, (0, 2, 3, 1)), (1, groups, 1, every))
        by_group = work.binary("add", work.reshape(scores, (shared, groups, length, every)), odd)
        scores = work.reshape(by_group, (shared * groups, length, every))
    if visibility.mask is not None:
        scores = _mask_scores(work, scores, visibility.mask, kv)
    joined = work.reshape(work.gemm(_softmax(work, scores, sinks), v), (shared, batch, kv, length, width))
    joined = work.permute(joined, (1, 3, 2, 0, 4))
    joined = work.reshape(joined, (*work.shape(x)[:-1], spec.num_heads * width))
    return linear(work, scope.params(spec), ("o.",), joined)


def _mask_scores(work: GraphBuilder, scores: int, mask: int, kv: int) -> int:
    """Emit the scores ``[shared · B · kv, T, S]``, -inf where the mask ``[T, S]`` or ``[B, T, S]`` is 0."""
    groups, length, every = work.shape(scores)
    if len(work.shape(mask)) == 2:
        return work.binary("mask", scores, mask)
    batch = work.shape(mask)[0]
    apart = work.reshape(scores, (groups // (batch * kv), batch, kv, length * every))
    mask = work.reshape(mask, (1, batch, 1, length * every))
    return work.reshape(work.binary("mask", apart, mask), (groups, length, every))


def _softmax(work: GraphBuilder, scores: int, sinks: int | None) -> int:
    """Emit ``softmax(scores)``, ``[groups, T, S]``; `sinks` ``[groups, T, 1]`` are extra logits, dropped afterwards."""
    groups, length, every = work.shape(scores)
    if sinks is not None:
        scores = work.concat((scores, sinks), 2)
    wide = work.shape(scores)[2]
    y = work.reshape(work.softmax(work.reshape(scores, (groups * length, wide))), (groups, length, wide))
    return y if sinks is None else work.part(y, 2, 0, every)
