"""The pre-norm decoder of Llama and its kin: RMSNorm, grouped attention with RoPE, RMSNorm, gated MLP, residuals."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.grid import Coord
from volumetric.layers import Dense, Embedding, MultiHeadAttention, RMSNorm, Rope, SwiGLU
from volumetric.loaders.chain import Chain
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint

ATTENTION_NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
MLP_NAMES = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
# Written by old versions of transformers, which kept the rotary frequencies as a buffer of the model.
ROTARY_BUFFERS = r"(?:model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"


def head_dim(config: Config) -> int:
    """Width of an attention head: given, or the hidden size shared out."""
    return config.integer("head_dim", config.integer("hidden_size") // config.integer("num_attention_heads") or 1)


def pre_norm_decoder(
    config: Config,
    *,
    ropes: Sequence[Rope | None],
    windows: Sequence[int | None],
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    tied: bool = False,
) -> Blueprint:
    """Build the decoder that `config` describes.

    Parameters
    ----------
    ropes, windows : rotary embedding and attention window of each layer, None for none
    qkv_bias, out_bias, mlp_bias : which projections have biases
    qk_norm : whether queries and keys are normalised by head
    tied : whether embedding and head share weights where the configuration does not say
    """
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", tied)
    chain = Chain()
    embedding = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=hidden), "model.embed_tokens")
    stream = embedding
    for i, (rope, window) in enumerate(zip(ropes, windows, strict=True)):
        attention = MultiHeadAttention(
            embed_dim=hidden,
            num_heads=config.integer("num_attention_heads"),
            num_kv_heads=config.integer("num_key_value_heads", config.integer("num_attention_heads")),
            head_dim=head_dim(config),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            rope=rope,
            window=window,
            qk_norm=qk_norm,
            qk_norm_eps=_eps(config),
        )
        mlp = SwiGLU(
            in_features=hidden,
            hidden_features=config.integer("intermediate_size"),
            activation=config.activation("hidden_act", "silu"),
            bias=mlp_bias,
        )
        stream = _block(
            chain, f"model.layers.{i}", stream, attention, mlp, RMSNorm(num_features=hidden, eps=_eps(config))
        )
    chain.plane()
    chain.add(RMSNorm(num_features=hidden, eps=_eps(config)), "model.norm")
    head = chain.add(Dense(in_features=hidden, out_features=vocabulary, bias=False), "lm_head")
    if tied:
        chain.tie(embedding, head)
    return chain.blueprint(
        context_length=config.integer("max_position_embeddings", 2048),
        # A tied head is sometimes written out once more.
        ignored=(ROTARY_BUFFERS, r"lm_head\.weight") if tied else (ROTARY_BUFFERS,),
        prefix="model.",
    )


def _eps(config: Config) -> float:
    return config.number("rms_norm_eps", 1e-6)


def _block(
    chain: Chain, prefix: str, stream: Coord, attention: MultiHeadAttention, mlp: SwiGLU, norm: RMSNorm
) -> Coord:
    """Place one transformer layer that reads `stream`; return where its output is."""
    chain.plane()
    chain.add(norm, f"{prefix}.input_layernorm")
    chain.add(attention, f"{prefix}.self_attn", ATTENTION_NAMES)
    stream = chain.residual(stream)
    chain.add(norm, f"{prefix}.post_attention_layernorm")
    chain.add(mlp, f"{prefix}.mlp", MLP_NAMES)
    return chain.residual(stream)
