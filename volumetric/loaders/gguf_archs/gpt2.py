"""GPT-2: learned positions, fused projections, biases throughout; matrices are not transposed in these files."""

from __future__ import annotations

from volumetric.loaders.gguf_family import GGUFFamily

FAMILY = GGUFFamily(
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
    values=lambda given, file: {"activation_function": "gelu_new"},
)
