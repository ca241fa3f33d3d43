"""GPT-2 (Radford et al. 2019): learned positions, LayerNorm, plain MLP; matrices are transposed, q, k, v fused."""

from __future__ import annotations

from volumetric.layers import MLP, Dense, Embedding, LayerNorm, MultiHeadAttention, PositionEmbedding
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder, FusedTensor


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a GPT-2 configuration."""
    config.require("scale_attn_by_inverse_layer_idx", False)
    config.require("reorder_and_upcast_attn", False)
    config.require("scale_attn_weights", True)
    config.require("add_cross_attention", False)
    width, vocabulary, positions = (config.integer(name) for name in ("n_embd", "vocab_size", "n_positions"))
    norm = LayerNorm(num_features=width, eps=config.number("layer_norm_epsilon", 1e-5))
    attention = MultiHeadAttention(
        embed_dim=width, num_heads=config.integer("n_head"), head_dim=None, qkv_bias=True, out_bias=True
    )
    mlp = MLP(
        in_features=width,
        hidden_features=config.integer("n_inner", 4 * width),
        activation=config.activation("activation_function", "gelu_new"),
    )
    fused = {name: FusedTensor("c_attn", FusedRows(i * width, (i + 1) * width)) for i, name in enumerate("qkv")}
    chain = CheckpointNetworkBuilder()
    embedding = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=width), "transformer.wte")
    stream = chain.add(PositionEmbedding(num_embeddings=positions, embedding_dim=width), "transformer.wpe")
    for i in range(config.layers("n_layer")):
        chain.next_plane()
        prefix = f"transformer.h.{i}"
        chain.add(norm, f"{prefix}.ln_1")
        chain.add(attention, f"{prefix}.attn", {**fused, "o": "c_proj"}, transposed=True)
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.ln_2")
        chain.add(mlp, f"{prefix}.mlp", {"up": "c_fc", "down": "c_proj"}, transposed=True)
        stream = chain.residual(stream)
    chain.next_plane()
    chain.add(norm, "transformer.ln_f")
    head = chain.add(Dense(in_features=width, out_features=vocabulary, bias=False), "lm_head")
    if config.flag("tie_word_embeddings", True):
        chain.tie(embedding, head)
    # Old checkpoints have the causal mask as a buffer of each layer.
    masks = r"(?:transformer\.)?h\.\d+\.attn\.(?:bias|masked_bias)"
    return chain.blueprint(context_length=positions, ignored=(masks,), prefix="transformer.")


GGUF = GGUFFamily(
    architecture="gpt2",
    model_type="gpt2",
    auto_class="GPT2LMHeadModel",
    inner={
        "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
    outer={
        "transformer.wte": "token_embd",
        "transformer.wpe": "position_embd",
        "transformer.ln_f": "output_norm",
        "lm_head": "output",
    },
    stack="transformer.h",
    renamed={
        "hidden_size": "n_embd",
        "intermediate_size": "n_inner",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "hidden_act": "activation_function",
        "num_key_value_heads": None,
        "head_dim": None,
        "rope_parameters": None,
    },
    epsilon="layer_norm_epsilon",
    biases=frozenset({"attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down"}),
    values=lambda metadata, file: {"activation_function": "gelu_new"},
)
"""GPT-2: learned positions, fused projections, biases throughout; matrices are not transposed in these files."""
