"""Layers of transformers: products, tables, norms of rows and attention."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Example, Examples
from tests.learning.tasks import learn
from volumetric.graph.numeric.activations import ACTIVATIONS

LLAMA3 = nn.Rope(
    dim=8, base=50.0, scaling="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16
)

HEADS: dict[str, nn.MultiHeadAttention] = {
    "mha": nn.MultiHeadAttention(embed_dim=12, num_heads=3),
    "mha-bidirectional": nn.MultiHeadAttention(embed_dim=12, num_heads=3, causal=False, qkv_bias=True, out_bias=True),
    "gqa-rope": nn.MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=8, rope=nn.Rope(dim=8)),
    "mqa-partial-rope": nn.MultiHeadAttention(
        embed_dim=10, num_heads=3, num_kv_heads=1, head_dim=6, rope=nn.Rope(dim=4, scaling="linear", factor=2.0)
    ),
    "llama3-rope": nn.MultiHeadAttention(embed_dim=16, num_heads=2, rope=LLAMA3, qkv_bias=True),
    "qk-norm": nn.MultiHeadAttention(embed_dim=12, num_heads=2, head_dim=8, rope=nn.Rope(dim=8), qk_norm=True),
    "qk-norm-offset": nn.MultiHeadAttention(embed_dim=12, num_heads=2, qk_norm=True, qk_norm_unit_offset=True),
    "qk-norm-over-all": nn.MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=4, rope=nn.Rope(dim=4), qk_norm=True, qk_norm_over="all"
    ),
    "window": nn.MultiHeadAttention(embed_dim=12, num_heads=2, window=2, rope=nn.Rope(dim=6)),
    "window-bidirectional": nn.MultiHeadAttention(embed_dim=12, num_heads=2, window=2, causal=False),
    "softcap": nn.MultiHeadAttention(embed_dim=12, num_heads=2, softcap=0.5, scale=0.7),
    "temperature": nn.MultiHeadAttention(embed_dim=12, num_heads=2, temperature_scale=0.7, temperature_every=2),
    "qk-norm-without-gain": nn.MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=6, rope=nn.Rope(dim=4), qk_norm=True, qk_norm_gain=False
    ),
    "sinks": nn.MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, sinks=True, window=3),
    "chunk": nn.MultiHeadAttention(embed_dim=12, num_heads=2, chunk=2),
    "qk-norm-own": nn.MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, qk_norm=True, qk_norm_kind="layer", qk_norm_over="each"
    ),
}


def _attention(rows: int, a: int, b: int) -> Example:
    width = 2 * (b % 8 + 1)
    return nn.MultiHeadAttention(
        embed_dim=a, num_heads=2, num_kv_heads=1, head_dim=width, rope=nn.Rope(dim=width), qk_norm=True, qkv_bias=True
    ), (rows, a)


ATTENTION: dict[str, Examples] = {
    "dense": Examples(
        cases={
            **{f"dense-{a}": (nn.Dense(in_features=5, out_features=7, activation=a), (4, 5)) for a in ACTIVATIONS},
            "dense-no-bias": (nn.Dense(in_features=1, out_features=1, bias=False), (1, 1)),
            "dense-batch": (nn.Dense(in_features=5, out_features=3), (2, 3, 5)),
        },
        sized=lambda r, a, b: (nn.Dense(in_features=a, out_features=b, activation="gelu"), (r, a)),
        bench=(nn.Dense(in_features=1024, out_features=1024), (256, 1024)),
    ),
    "embedding": Examples(
        cases={"embedding": (nn.Embedding(num_embeddings=7, embedding_dim=5, scale=1.5), (6,))},
        sized=lambda r, a, b: (nn.Embedding(num_embeddings=b, embedding_dim=a), (r,)),
        task=learn(nn.Embedding(num_embeddings=7, embedding_dim=4), row=None, rate=1.0),
        bench=(4096, 512, 32000),
    ),
    "position_embedding": Examples(
        cases={
            "position": (nn.PositionEmbedding(num_embeddings=9, embedding_dim=5, offset=2), (4, 5)),
            "position-batch": (nn.PositionEmbedding(num_embeddings=9, embedding_dim=5), (3, 4, 5)),
        },
        sized=lambda r, a, b: (nn.PositionEmbedding(num_embeddings=r + 2, embedding_dim=a, offset=2), (r, a)),
        task=learn(
            nn.Dense(in_features=4, out_features=4),
            nn.PositionEmbedding(num_embeddings=6, embedding_dim=4),
            row=(4,),
            rows=5,
        ),
        bench=(nn.PositionEmbedding(num_embeddings=512, embedding_dim=1024), (8, 512, 1024)),
    ),
    "rms_norm": Examples(
        cases={
            "rms": (nn.RMSNorm(num_features=7), (3, 7)),
            "rms-offset": (nn.RMSNorm(num_features=7, unit_offset=True, eps=1e-5), (2, 3, 7)),
        },
        sized=lambda r, a, b: (nn.RMSNorm(num_features=b), (r, b)),
        bench=(4096, 1, 1024),
    ),
    "layer_norm": Examples(
        cases={
            "layer-norm": (nn.LayerNorm(num_features=7), (3, 7)),
            "layer-norm-no-bias": (nn.LayerNorm(num_features=7, bias=False), (2, 2, 7)),
        },
        sized=lambda r, a, b: (nn.LayerNorm(num_features=b), (r, b)),
        bench=(4096, 1, 1024),
    ),
    "multi_head_attention": Examples(
        cases={
            **{name: (spec, (5, spec.embed_dim)) for name, spec in HEADS.items()},
            "mha-batch": (HEADS["gqa-rope"], (2, 5, 12)),
            "mha-one-row": (HEADS["gqa-rope"], (1, 12)),
        },
        sized=_attention,
        task=learn(
            nn.MultiHeadAttention(embed_dim=8, num_heads=2, num_kv_heads=1, rope=nn.Rope(dim=4), qk_norm=True),
            row=(8,),
            rows=5,
            rate=0.5,
        ),
        bench=(nn.MultiHeadAttention(embed_dim=512, num_heads=8), (4, 256, 512)),
    ),
    "swiglu": Examples(
        cases={
            **{f"swiglu-{a}": (nn.SwiGLU(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
            "swiglu-factor": (nn.SwiGLU(in_features=5, hidden_features=7, gate_factor=0.4), (3, 5)),
            "swiglu-bias": (nn.SwiGLU(in_features=5, hidden_features=3, bias=True), (2, 3, 5)),
            "swiglu-bounded": (
                nn.SwiGLU(
                    in_features=5, hidden_features=7, activation="quick_gelu", bias=True, limit=0.4, up_offset=1.0
                ),
                (3, 5),
            ),
        },
        sized=lambda r, a, b: (nn.SwiGLU(in_features=a, hidden_features=b), (r, a)),
        task=learn(nn.SwiGLU(in_features=4, hidden_features=6), row=(4,)),
        bench=(256, 576, 1536),
    ),
    "mlp": Examples(
        cases={
            **{f"mlp-{a}": (nn.MLP(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
            "mlp-no-bias": (nn.MLP(in_features=5, hidden_features=3, bias=False), (2, 3, 5)),
        },
        sized=lambda r, a, b: (nn.MLP(in_features=a, hidden_features=b), (r, a)),
        bench=(256, 512, 2048),
    ),
}
