"""One or more specs of every layer kind with an input shape: the table that the layer tests walk."""

from __future__ import annotations

from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Rope,
    Sequential,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.layers.activations import ACTIVATIONS

LLAMA3 = Rope(
    dim=8, base=50.0, scaling="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16
)

_ATTENTION: dict[str, LayerSpec] = {
    "mha": MultiHeadAttention(embed_dim=12, num_heads=3),
    "mha-bidirectional": MultiHeadAttention(embed_dim=12, num_heads=3, causal=False, qkv_bias=True, out_bias=True),
    "gqa-rope": MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=8, rope=Rope(dim=8)),
    "mqa-partial-rope": MultiHeadAttention(
        embed_dim=10, num_heads=3, num_kv_heads=1, head_dim=6, rope=Rope(dim=4, scaling="linear", factor=2.0)
    ),
    "llama3-rope": MultiHeadAttention(embed_dim=16, num_heads=2, rope=LLAMA3, qkv_bias=True),
    "qk-norm": MultiHeadAttention(embed_dim=12, num_heads=2, head_dim=8, rope=Rope(dim=8), qk_norm=True),
    "qk-norm-offset": MultiHeadAttention(embed_dim=12, num_heads=2, qk_norm=True, qk_norm_unit_offset=True),
    "window": MultiHeadAttention(embed_dim=12, num_heads=2, window=2, rope=Rope(dim=6)),
    "window-bidirectional": MultiHeadAttention(embed_dim=12, num_heads=2, window=2, causal=False),
    "softcap": MultiHeadAttention(embed_dim=12, num_heads=2, softcap=0.5, scale=0.7),
}

_PRENORM = Sequential(layers=(RMSNorm(num_features=6), Dense(in_features=6, out_features=6), Residual(source="input")))

CASES: dict[str, tuple[LayerSpec, tuple[int, ...]]] = {
    **{name: (spec, (5, spec.embed_dim)) for name, spec in _ATTENTION.items() if isinstance(spec, MultiHeadAttention)},
    "mha-batch": (_ATTENTION["gqa-rope"], (2, 5, 12)),
    "mha-one-row": (_ATTENTION["gqa-rope"], (1, 12)),
    "embedding": (Embedding(num_embeddings=7, embedding_dim=5, scale=1.5), (6,)),
    "position": (PositionEmbedding(num_embeddings=9, embedding_dim=5, offset=2), (4, 5)),
    "position-batch": (PositionEmbedding(num_embeddings=9, embedding_dim=5), (3, 4, 5)),
    **{f"dense-{a}": (Dense(in_features=5, out_features=7, activation=a), (4, 5)) for a in ACTIVATIONS},
    "dense-no-bias": (Dense(in_features=1, out_features=1, bias=False), (1, 1)),
    "dense-batch": (Dense(in_features=5, out_features=3), (2, 3, 5)),
    "rms": (RMSNorm(num_features=7), (3, 7)),
    "rms-offset": (RMSNorm(num_features=7, unit_offset=True, eps=1e-5), (2, 3, 7)),
    "layer-norm": (LayerNorm(num_features=7), (3, 7)),
    "layer-norm-no-bias": (LayerNorm(num_features=7, bias=False), (2, 2, 7)),
    "softmax": (Softmax(temperature=0.7), (3, 5)),
    "softcap-layer": (Softcap(cap=2.0), (3, 5)),
    **{f"swiglu-{a}": (SwiGLU(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
    "swiglu-bias": (SwiGLU(in_features=5, hidden_features=3, bias=True), (2, 3, 5)),
    **{f"mlp-{a}": (MLP(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
    "mlp-no-bias": (MLP(in_features=5, hidden_features=3, bias=False), (2, 3, 5)),
    "sequential": (Sequential(layers=(_PRENORM, _PRENORM, Residual(), Softmax())), (4, 6)),
    "sequential-named": (
        Sequential(layers=(Dense(in_features=6, out_features=6), _PRENORM, Softcap(cap=1.0), Residual(source="#0"))),
        (4, 6),
    ),
    "parallel-concat": (
        Parallel(branches=(Dense(in_features=6, out_features=2), _PRENORM, Dense(in_features=6, out_features=3))),
        (4, 6),
    ),
    "parallel-add": (Parallel(branches=(_PRENORM, Dense(in_features=6, out_features=6)), combine="add"), (2, 3, 6)),
    "parallel-avg": (Parallel(branches=(_PRENORM, _PRENORM, Softmax()), combine="avg"), (4, 6)),
    "parallel-nested": (
        Parallel(
            branches=(
                Parallel(branches=(_PRENORM, Softmax()), combine="add"),
                Sequential(layers=(Parallel(branches=(Softmax(), _PRENORM)), Dense(in_features=12, out_features=6))),
            ),
            combine="avg",
        ),
        (4, 6),
    ),
    "residual": (Sequential(layers=(Dense(in_features=6, out_features=6), Residual())), (4, 6)),
}
