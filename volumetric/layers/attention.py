"""Multi-head attention with everything that current decoders vary: grouped keys, RoPE, head norms, windows, soft caps.

Vaswani et al. 2017 (arXiv 1706.03762); grouped queries: Ainslie et al. 2023 (arXiv 2305.13245); sliding window: Mistral
(arXiv 2310.06825); normalised queries and keys: Qwen3 (arXiv 2505.09388); soft cap: Gemma 2 (arXiv 2408.00118); sinks:
gpt-oss (arXiv 2508.10925).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

from volumetric._typing import Shape
from volumetric.errors import SpecError
from volumetric.graph.numeric.rope import Rope
from volumetric.graph.state import StateSpec, is_sequence
from volumetric.layers.base import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.dense import affine_params
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

    def emit(self, scope: Scope, x: int) -> int:
        from volumetric.layers.nodes.attention import emit_multi_head_attention  # which imports this module

        return emit_multi_head_attention(scope, self, x)
