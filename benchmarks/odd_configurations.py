"""Small models of every family in odd configurations, as `compare_gguf.py odd` makes and compares them.

Each is a model type, a name, and values of its configuration; `configurations` gives them all. Most differ from the
usual in one thing that a file format could forget: shared heads, windows, biases, scalings of the rotation, widths that
are no multiples of anything, layers of other kinds, experts that are chosen otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from odd_encoders import ENCODERS
from odd_pieces import (
    BIASES,
    EXPERTS,
    FIVE,
    FREE,
    HEADS,
    LAYERS4,
    LLAMA3,
    MQA,
    ONE_HEAD,
    QWEN_EXPERTS,
    QWEN_FIVE,
    RELU,
    ROPES,
    SLIDING,
    SMALL,
    TIED,
    WINDOW,
    WINDOWS,
    WITHOUT_KV,
    YARN,
    Values,
    kinds,
    longrope,
    rope,
)

DECODERS: Final[Mapping[str, tuple[Values, Mapping[str, Values]]]] = {
    "llama": (
        SMALL,
        {
            **HEADS,
            "as many heads": {"num_key_value_heads": 4},
            **ONE_HEAD,
            "wide heads": {"head_dim": 32},
            "narrow heads": {"head_dim": 8},
            "5 heads of 12": {"hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 5},
            "biases of attention": {"attention_bias": True},
            "biases of MLPs": {"mlp_bias": True},
            "all biases": {"attention_bias": True, "mlp_bias": True},
            "gelu": {"hidden_act": "gelu"},
            **RELU,
            "partial rotation": rope("default", partial_rotary_factor=0.5),
            "131 tokens": {"vocab_size": 131},
            "one layer": {"num_hidden_layers": 1},
            "epsilon 1e-3": {"rms_norm_eps": 1e-3},
            "width 100": {"intermediate_size": 100},
            **ROPES,
        },
    ),
    "mistral": (
        {**SMALL, "sliding_window": None},
        {
            **HEADS,
            **WINDOWS,
            "one head of keys, window": {**MQA, **WINDOW},
            "wide heads": {"head_dim": 32},
            "yarn": YARN,
        },
    ),
    "mixtral": (
        {**SMALL, **EXPERTS, "sliding_window": None},
        {
            **HEADS,
            **FIVE,
            "1 chosen": {"num_experts_per_tok": 1},
            "all chosen": {"num_experts_per_tok": 4},
            "window 8": WINDOW,
        },
    ),
    "qwen2": (
        SMALL,
        {
            **HEADS,
            "windows": SLIDING,
            "yarn": YARN,
            **ONE_HEAD,
            "linear": rope("linear", factor=2.0),
            "llama3": rope("llama3", **LLAMA3),
        },
    ),
    "qwen3": (
        {**SMALL, "head_dim": 16},
        {**HEADS, "wide heads": {"head_dim": 32}, **BIASES, "windows": SLIDING, "yarn": YARN, **ONE_HEAD},
    ),
    "qwen2_moe": (
        {**SMALL, **QWEN_EXPERTS, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1},
        {
            **HEADS,
            "every second": {"decoder_sparse_step": 2},
            "a dense layer": {"mlp_only_layers": [0]},
            "normed choice": {"norm_topk_prob": True},
            "no biases": {"qkv_bias": False},
            **QWEN_FIVE,
        },
    ),
    "qwen3_moe": (
        {**SMALL, **QWEN_EXPERTS, "head_dim": 16, "decoder_sparse_step": 1, "norm_topk_prob": True},
        {
            **HEADS,
            "choice as it is": {"norm_topk_prob": False},
            "every second": {"decoder_sparse_step": 2},
            "a dense layer": {"mlp_only_layers": [0]},
            **QWEN_FIVE,
            **BIASES,
        },
    ),
    "phi3": (
        {**SMALL, "sliding_window": None, "original_max_position_embeddings": 128},
        {
            **HEADS,
            "half rotated": rope("default", partial_rotary_factor=0.5),
            **WINDOWS,
            "longrope": longrope(8),
            "longrope, own factor": longrope(8, attention_factor=1.4),
            **ONE_HEAD,
            "longrope, half rotated": longrope(4, partial_rotary_factor=0.5),
        },
    ),
    "gemma": ({**SMALL, "head_dim": 16}, {**HEADS, "wide heads": {"head_dim": 32}, **ONE_HEAD, **BIASES}),
    "gemma2": (
        {**SMALL, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8},
        {
            **HEADS,
            "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
            "scores of 32": {"query_pre_attn_scalar": 32},
            "all windows": {"layer_types": kinds("ss")},
            "no windows": {"layer_types": kinds("ff")},
            "windows last": {"layer_types": kinds("fs")},
        },
    ),
    "gemma3_text": (
        {**SMALL, **LAYERS4, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8},
        {
            **HEADS,
            "all windows": {"layer_types": kinds("ssss")},
            "no windows": {"layer_types": kinds("ffff")},
            "windows first and last": {"layer_types": kinds("sffs")},
            "scores of 32": {"query_pre_attn_scalar": 32},
            "cap": {"final_logit_softcapping": 5.0},
            **BIASES,
            "linear": {
                "layer_types": kinds("ssfs"),
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
            "both ways": {"use_bidirectional_attention": True, "layer_types": kinds("ssfs")},
        },
    ),
    "gpt2": (
        {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 1}
        | {"eos_token_id": 2},
        {
            **HEADS,
            "relu": {"activation_function": "relu"},
            "scores by layer": {"scale_attn_by_inverse_layer_idx": True},
            "scores as they are": {"scale_attn_weights": False},
            "width 100": {"n_inner": 100},
        },
    ),
    "gpt_neox": (
        WITHOUT_KV,
        {
            **HEADS,
            "one after the other": {"use_parallel_residual": False},
            "no biases of attention": {"attention_bias": False},
            "5 heads, a third rotated": {"hidden_size": 60, "num_attention_heads": 5}
            | rope("default", partial_rotary_factor=0.34),
            "all rotated": rope("default", partial_rotary_factor=1.0),
            **RELU,
            "linear": rope("linear", factor=2.0, partial_rotary_factor=0.5),
        },
    ),
    "gpt_oss": (
        {**SMALL, **EXPERTS, "head_dim": 16, "sliding_window": 8, **rope("default")},
        {
            **HEADS,
            "yarn": YARN,
            "yarn, fractions": FREE,
            "no biases": {"attention_bias": False},
            **FIVE,
            "no windows": {"layer_types": kinds("ff")},
            "windows last": {"layer_types": kinds("fs")},
        },
    ),
    "granite": (
        SMALL,
        {
            **HEADS,
            "factors": {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "logits_scaling": 4.0}
            | {"residual_multiplier": 0.4},
            "biases": {"attention_bias": True, "mlp_bias": True},
            "linear": rope("linear", factor=2.0),
            "llama3, high 3": rope("llama3", **LLAMA3 | {"high_freq_factor": 3.0}),
            "longrope": longrope(8),
        },
    ),
    "granitemoe": ({**SMALL, **EXPERTS}, {**HEADS, **FIVE, **BIASES}),
    "lfm2": (
        {**SMALL, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        {
            **HEADS,
            "adjusted width": {"block_auto_adjust_ff_dim": True, "block_multiple_of": 8},
            "biases": {"conv_bias": True},
            "all attention": {"layer_types": kinds("ff")},
            "two taps": {"conv_L_cache": 2},
        },
    ),
    "llama4_text": (
        {**SMALL, **LAYERS4, **EXPERTS, "num_experts_per_tok": 1, "head_dim": 16, "intermediate_size_mlp": 80}
        | {"interleave_moe_layer_step": 1},
        {
            **HEADS,
            "every second": {"interleave_moe_layer_step": 2},
            "two layers": {"num_hidden_layers": 2},
            "no norms of heads": {"use_qk_norm": False},
            "two chosen": {"num_experts_per_tok": 2},
            "chunks of 7": {"attention_chunk_size": 7},
            **BIASES,
        },
    ),
    "mamba": (
        {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16},
        {
            **HEADS,
            "3 times": {"expand": 3},
            "3 taps": {"conv_kernel": 3},
            "no biases of taps": {"use_conv_bias": False},
            "biases": {"use_bias": True},
        },
    ),
    "mamba2": (
        {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "num_heads": 8, "head_dim": 16}
        | {"n_groups": 1, "chunk_size": 16},
        {
            **HEADS,
            "two groups": {"n_groups": 2},
            "3 taps": {"conv_kernel": 3},
            "biases": {"use_bias": True},
            "limits": {"time_step_limit": [0.05, 0.5]},
        },
    ),
    "falcon_h1": (
        {**SMALL, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
        | {"mamba_chunk_size": 16, "head_dim": 16},
        {
            **HEADS,
            "norms": {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
            "norms before": {"mamba_rms_norm": True, "mamba_norm_before_gate": True},
            "two groups": {"mamba_n_groups": 2},
            "factors": {"embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.7}
            | {"attention_out_multiplier": 0.8, "ssm_multipliers": [0.5, 0.7, 0.9, 1.1, 1.3], "ssm_in_multiplier": 1.2},
            **BIASES,
        },
    ),
    "olmo2": (SMALL, {**HEADS, "yarn": YARN, **BIASES, **ONE_HEAD}),
    "olmo3": (
        {**SMALL, **LAYERS4, "sliding_window": 8},
        {
            **HEADS,
            "windows last": {"layer_types": kinds("ffss")},
            "no windows": {"layer_types": kinds("ffff")},
            "yarn": YARN,
        },
    ),
    "smollm3": (
        {**SMALL, **LAYERS4},
        {
            **HEADS,
            "all rotated": {"no_rope_layers": [1, 1, 1, 1]},
            "every second": {"no_rope_layer_interval": 2, "no_rope_layers": [1, 0, 1, 0]},
            "windows": {"use_sliding_window": True, "sliding_window": 8},
            **BIASES,
            "yarn": YARN,
        },
    ),
    "stablelm": (
        SMALL,
        {
            **HEADS,
            "side by side": {"use_parallel_residual": True},
            "norms of heads": {"qk_layernorm": True},
            "biases": {"use_qkv_bias": True},
            "three quarters rotated": rope("default", partial_rotary_factor=0.75),
            "all at once": {**TIED, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
        },
    ),
    "starcoder2": (
        {**SMALL, "sliding_window": None},
        {
            **HEADS,
            "no biases": {"use_bias": False},
            "exact GELU": {"hidden_act": "gelu"},
            "window 8": WINDOW,
            **ONE_HEAD,
        },
    ),
    "cohere": (
        SMALL,
        {**HEADS, "norms of heads": {"use_qk_norm": True}, **BIASES, "scale 0.3": {"logit_scale": 0.3}},
    ),
    "cohere2": (
        {**SMALL, **LAYERS4, "sliding_window": 8, "head_dim": 16},
        {
            **HEADS,
            "every second": {"layer_types": kinds("sfsf")},
            "all windows": {"layer_types": kinds("ssss")},
            **BIASES,
        },
    ),
}


def configurations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model type, name of the variant, and values of the configuration, of each."""
    for family, (usual, variants) in {**DECODERS, **ENCODERS}.items():
        for name, own in variants.items():
            yield family, name, {**usual, **own}
