"""The pre-norm decoder of Llama and its kin: RMSNorm, grouped attention with RoPE, RMSNorm, gated MLP, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.grid import Coord
from volumetric.layers import MultiHeadAttention, RMSNorm, Rope, SwiGLU
from volumetric.loaders.chain import Chain, Fused
from volumetric.loaders.decoder import head_dim, stacked_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.names import Blueprint

ATTENTION_NAMES: Mapping[str, str | Fused] = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
MLP_NAMES: Mapping[str, str | Fused] = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}


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
    attention_names: Mapping[str, str | Fused] = ATTENTION_NAMES,
    mlp_names: Mapping[str, str | Fused] = MLP_NAMES,
) -> Blueprint:
    """Build the decoder that `config` describes.

    Parameters
    ----------
    ropes, windows : rotary embedding and attention window of each layer, None for none
    qkv_bias, out_bias, mlp_bias : which projections have biases
    qk_norm : whether queries and keys are normalised by head
    tied : whether embedding and head share weights where the configuration does not say
    attention_names, mlp_names : what the projections are called in the checkpoint
    """
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    norm = RMSNorm(num_features=hidden, eps=config.number("rms_norm_eps", 1e-6))
    mlp = SwiGLU(
        in_features=hidden,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "silu"),
        bias=mlp_bias,
    )

    def place(chain: Chain, i: int, prefix: str, stream: Coord) -> Coord:
        attention = MultiHeadAttention(
            embed_dim=hidden,
            num_heads=heads,
            num_kv_heads=config.integer("num_key_value_heads", heads),
            head_dim=head_dim(config),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            rope=ropes[i],
            window=windows[i],
            qk_norm=qk_norm,
            qk_norm_eps=norm.eps,
        )
        chain.add(norm, f"{prefix}.input_layernorm")
        chain.add(attention, f"{prefix}.self_attn", attention_names)
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.post_attention_layernorm")
        chain.add(mlp, f"{prefix}.mlp", mlp_names)
        return chain.residual(stream)

    return stacked_decoder(config, place, norm, tied=tied)
