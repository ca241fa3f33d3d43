"""Nomic's BERT (Nussbaum et al. 2024, arXiv 2402.01613): post-norm BERT with RoPE and SwiGLU, without most biases."""

from __future__ import annotations

from volumetric.layers import LayerNorm, MultiHeadAttention, Rope, SwiGLU
from volumetric.loaders.archs.bert import read_encoder, write_encoder
from volumetric.loaders.encoder_layers import (
    BlockNames,
    MaskNames,
    add_mask_head,
    add_typed_tokens,
    post_norm_block,
    task,
)
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, FusedTensor

_PREFIX = "nomic_bert."
_MASK = MaskNames(
    dense="cls.predictions.transform.dense",
    norm="cls.predictions.transform.layer_norm",
    decoder="cls.predictions.decoder",
    bias="cls.predictions.bias",
)
_SPELLING = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}
_ALWAYS = {
    "activation_function": "swiglu",
    "causal": False,
    "prenorm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": 1.0,
    "use_rms_norm": False,
}


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a configuration in Nomic's spelling (n_embd, …) or in that of transformers (hidden_size)."""
    config = _in_transformers_names(config)
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    size = width // max(heads, 1)
    norm = LayerNorm(num_features=width, eps=config.number("layer_norm_eps", 1e-12))
    bias = config.flag("qkv_proj_bias", False)
    attention = MultiHeadAttention(
        embed_dim=width, num_heads=heads, qkv_bias=bias, out_bias=bias, causal=False, rope=_rope(config, size)
    )
    mlp = SwiGLU(
        in_features=width,
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "silu"),
        bias=config.flag("mlp_fc1_bias", False),
    )
    fused = {name: FusedTensor("Wqkv", FusedRows(i * width, (i + 1) * width)) for i, name in enumerate("qkv")}
    names = BlockNames(
        attention="attn",
        projections={**fused, "o": "out_proj"},
        attention_norm="norm1",
        mlp="mlp",
        factors={"up": "fc11", "gate": "fc12", "down": "fc2"},
        mlp_norm="norm2",
    )
    chain = CheckpointNetworkBuilder()
    tokens, stream = add_typed_tokens(chain, f"{_PREFIX}embeddings", config, norm, f"{_PREFIX}emb_ln")
    for i in range(config.layers()):
        chain.next_plane()
        stream = post_norm_block(chain, stream, f"{_PREFIX}encoder.layers.{i}", (attention, mlp, norm), names)
    masks = task(config) == "mask"
    if masks:
        add_mask_head(chain, tokens, config, _MASK, norm=norm, activation=config.activation("hidden_act", "silu"))
    return chain.blueprint(
        context_length=config.integer("max_position_embeddings", 2048),
        ignored=(r"cls\.predictions\.decoder\.bias",),
        prefix=_PREFIX,
        hidden=stream if masks else None,
    )


def _in_transformers_names(config: Config) -> Config:
    """Return a configuration with the names of transformers; other options of Nomic's code are refused."""
    for name, allowed in _ALWAYS.items():
        config.require(name, allowed)
    return config.with_values(**{new: config.values[old] for old, new in _SPELLING.items() if config.has(old)})


def _rope(config: Config, size: int) -> Rope:
    if config.has("rope_parameters"):
        return read_rope(config, size)
    return Rope(dim=size, base=config.number("rotary_emb_base", 10_000.0))


GGUF = GGUFFamily(
    architecture="nomic-bert",
    model_type="nomic_bert",
    auto_class="NomicBertModel",
    inner={
        "attn.Wqkv": "attn_qkv",
        "attn.out_proj": "attn_output",
        "norm1": "attn_output_norm",
        "mlp.fc11": "ffn_up",
        "mlp.fc12": "ffn_gate",
        "mlp.fc2": "ffn_down",
        "norm2": "layer_output_norm",
    },
    outer={
        "nomic_bert.embeddings.word_embeddings": "token_embd",
        "nomic_bert.embeddings.token_type_embeddings": "token_types",
        "nomic_bert.emb_ln": "token_embd_norm",
    },
    stack="nomic_bert.encoder.layers",
    renamed={"num_key_value_heads": None},
    epsilon="layer_norm_eps",
    biases=frozenset({"attn_output_norm", "layer_output_norm"}),
    singles=frozenset({"token_types.weight"}),
    head="shared",
    values=read_encoder,
    metadata=write_encoder,
)
"""Nomic's BERT: bidirectional post-norm blocks with RoPE, SwiGLU and fused projections without biases."""
