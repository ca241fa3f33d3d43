"""The pre-norm decoder of Llama and related models: norm, grouped attention with RoPE, norm, MLP, residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volumetric.layers import LayerNorm, LayerSpec, MultiHeadAttention, RMSNorm, Rope, Scale, SwiGLU
from volumetric.loaders.decoder import head_dim, stacked_decoder
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, StoredForm
from volumetric.network.grid import Coord

ATTENTION_NAMES: Mapping[str, StoredForm] = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
NORMS_OF_EACH_HEAD: Mapping[str, Any] = {"qk_norm_kind": "layer", "qk_norm_over": "each"}
"""Fields of `MultiHeadAttention`: queries and keys of each head have a LayerNorm with separate gains."""
MLP_NAMES: Mapping[str, StoredForm] = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}


@dataclass(frozen=True, slots=True)
class BlockLayer:
    """A layer between a norm and a residual sum, and the names of its tensors below its prefix."""

    spec: LayerSpec
    path: str
    names: Mapping[str, StoredForm] = field(default_factory=dict)

    def place(self, chain: CheckpointNetworkBuilder, prefix: str) -> Coord:
        """Add the layer to a chain."""
        return chain.add(self.spec, f"{prefix}.{self.path}", self.names)


def attention_blocks(
    config: Config,
    ropes: Sequence[Rope | None],
    windows: Sequence[int | None],
    names: Mapping[str, StoredForm] = ATTENTION_NAMES,
    **fields: Any,
) -> list[BlockLayer]:
    """Attention of each layer, with the sizes of a configuration and further `fields` of `MultiHeadAttention`."""
    heads = config.integer("num_attention_heads")
    shared: dict[str, Any] = {
        "embed_dim": config.integer("hidden_size"),
        "num_heads": heads,
        "num_kv_heads": config.integer("num_key_value_heads", heads),
        "head_dim": head_dim(config),
        **fields,
    }
    pairs = zip(ropes, windows, strict=True)
    return [BlockLayer(MultiHeadAttention(**shared, rope=r, window=w), "self_attn", names) for r, w in pairs]


def gated_mlp(config: Config, *, bias: bool = False, names: Mapping[str, StoredForm] = MLP_NAMES) -> BlockLayer:
    """Gated MLP with the sizes of a configuration."""
    spec = SwiGLU(
        in_features=config.integer("hidden_size"),
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "silu"),
        bias=bias,
    )
    return BlockLayer(spec, "mlp", names)


def rms_norm(config: Config, eps: float = 1e-6) -> RMSNorm:
    """Norm of the residual stream, with the sizes of a configuration."""
    return RMSNorm(num_features=config.integer("hidden_size"), eps=config.number("rms_norm_eps", eps))


def pre_norm_stack(
    config: Config,
    norm: RMSNorm | LayerNorm,
    attentions: Sequence[BlockLayer],
    feeds: Sequence[BlockLayer],
    *,
    parallel: bool = False,
    residual_scale: float = 1.0,
    tied: bool = False,
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
) -> ModelBlueprint:
    """Build a decoder of these blocks, two in each layer.

    Parameters
    ----------
    norm : norm before each block, and the last norm
    attentions, feeds : the blocks of each layer
    parallel : both blocks of a layer read the same norm of the stream, and both outputs are added to the stream
    residual_scale : factor on the output of a block before the sum
    tied, embedding_scale, logit_scale : see `decoder.stacked_decoder`
    """

    def add(chain: CheckpointNetworkBuilder, stream: Coord) -> Coord:
        if residual_scale != 1.0:
            chain.add(Scale(factor=residual_scale))
        return chain.residual(stream)

    def place(chain: CheckpointNetworkBuilder, i: int, prefix: str, stream: Coord) -> Coord:
        normed = chain.add(norm, f"{prefix}.input_layernorm")
        attentions[i].place(chain, prefix)
        stream = add(chain, stream)
        if parallel:
            chain.set_source(normed, feeds[i].place(chain, prefix))
        else:
            chain.add(norm, f"{prefix}.post_attention_layernorm")
            feeds[i].place(chain, prefix)
        return add(chain, stream)

    return stacked_decoder(config, place, norm, tied=tied, embedding_scale=embedding_scale, logit_scale=logit_scale)


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
    attention_names: Mapping[str, StoredForm] = ATTENTION_NAMES,
    mlp_names: Mapping[str, StoredForm] = MLP_NAMES,
) -> ModelBlueprint:
    """Build the decoder with gated MLPs and RMSNorms that `config` describes.

    Parameters
    ----------
    ropes, windows : rotary embedding and attention window of each layer, None for none
    qkv_bias, out_bias, mlp_bias : which projections have biases
    qk_norm : whether queries and keys are normalised for each head
    tied : default for whether embedding and head share weights
    attention_names, mlp_names : names of the projections in the checkpoint
    """
    norm = rms_norm(config)
    attentions = attention_blocks(
        config,
        ropes,
        windows,
        attention_names,
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        qk_norm=qk_norm,
        qk_norm_eps=norm.eps,
    )
    feeds = [gated_mlp(config, bias=mlp_bias, names=mlp_names)] * len(attentions)
    return pre_norm_stack(config, norm, attentions, feeds, tied=tied)
