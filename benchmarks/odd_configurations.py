"""Small models of every family in odd configurations, as `compare_gguf.py odd` makes and compares them.

Each is a model type, a name, and values of its configuration; `configurations` gives them all. Most differ from the
usual in one thing that a file format could forget: shared heads, windows, biases, scalings of the rotation, widths that
are no multiples of anything, layers of other kinds, experts that are chosen otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Values = dict[str, Any]

_SMALL: Final[Values] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_WITHOUT_KV: Final = {key: value for key, value in _SMALL.items() if key != "num_key_value_heads"}
_ENCODER: Final = {**_WITHOUT_KV, "architectures": ["Model"]}
TIED: Final[Values] = {"tie_word_embeddings": True}
UNTIED: Final[Values] = {"tie_word_embeddings": False}


def _rope(kind: str, **values: Any) -> Values:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4} | values}


def _longrope(pairs: int, **values: Any) -> Values:
    lists = {"short_factor": [1.0] * pairs, "long_factor": [1.0 + 0.5 * i for i in range(pairs)]}
    return _rope("longrope", **lists, original_max_position_embeddings=32, **values) | {
        "original_max_position_embeddings": 32
    }


def _kinds(text: str) -> list[str]:
    """Kinds of layers: s has a window, f sees all."""
    return [{"s": "sliding_attention", "f": "full_attention"}[letter] for letter in text]


_YARN: Final = _rope("yarn", factor=4.0, original_max_position_embeddings=32)
_FREE: Final = _rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False)
_LLAMA3: Final = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_MQA: Final[Values] = {"num_key_value_heads": 1}
_WINDOW: Final[Values] = {"sliding_window": 8}
_SLIDING: Final[Values] = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}

_ROPES: Final[Mapping[str, Values]] = {
    "linear": _rope("linear", factor=2.0),
    "yarn": _YARN,
    "yarn, own factor": _rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.3),
    "yarn, mscale": _rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=1.0),
    "yarn, other betas": _rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=2.0),
    "yarn, fractions": _FREE,
    "llama3": _rope("llama3", **_LLAMA3),
    "llama3, high 3": _rope("llama3", **_LLAMA3 | {"high_freq_factor": 3.0}),
    "llama3, low 0.5": _rope("llama3", **_LLAMA3 | {"low_freq_factor": 0.5}),
    "llama3, original 1000": _rope("llama3", **_LLAMA3 | {"original_max_position_embeddings": 1000}),
    "longrope": _longrope(8),
    "dynamic": {**_rope("dynamic", factor=2.0), "max_position_embeddings": 512},
    "base 5e5": _rope("default", rope_theta=5e5),
}

_EXPERTS: Final = {"num_local_experts": 4, "num_experts_per_tok": 2}
_QWEN_EXPERTS: Final = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LAYERS4: Final = {"num_hidden_layers": 4}

VARIANTS: Final[Mapping[str, tuple[Values, Mapping[str, Values]]]] = {
    "llama": (
        _SMALL,
        {
            "tied": TIED,
            "untied": UNTIED,
            "as many heads": {"num_key_value_heads": 4},
            "one head of keys": _MQA,
            "wide heads": {"head_dim": 32},
            "narrow heads": {"head_dim": 8},
            "5 heads of 12": {"hidden_size": 60, "num_attention_heads": 5, "num_key_value_heads": 5},
            "biases of attention": {"attention_bias": True},
            "biases of MLPs": {"mlp_bias": True},
            "all biases": {"attention_bias": True, "mlp_bias": True},
            "gelu": {"hidden_act": "gelu"},
            "relu": {"hidden_act": "relu"},
            "partial rotation": _rope("default", partial_rotary_factor=0.5),
            "131 tokens": {"vocab_size": 131},
            "one layer": {"num_hidden_layers": 1},
            "epsilon 1e-3": {"rms_norm_eps": 1e-3},
            "width 100": {"intermediate_size": 100},
            **_ROPES,
        },
    ),
    "mistral": (
        {**_SMALL, "sliding_window": None},
        {
            "tied": TIED,
            "untied": UNTIED,
            "window 8": _WINDOW,
            "window of the context": {"sliding_window": 128},
            "one head of keys, window": {**_MQA, **_WINDOW},
            "wide heads": {"head_dim": 32},
            "yarn": _YARN,
        },
    ),
    "mixtral": (
        {**_SMALL, **_EXPERTS, "sliding_window": None},
        {
            "tied": TIED,
            "untied": UNTIED,
            "5 experts, 3 chosen": {"num_local_experts": 5, "num_experts_per_tok": 3},
            "1 chosen": {"num_experts_per_tok": 1},
            "all chosen": {"num_experts_per_tok": 4},
            "window 8": _WINDOW,
        },
    ),
    "qwen2": (
        _SMALL,
        {
            "tied": TIED,
            "untied": UNTIED,
            "windows": _SLIDING,
            "yarn": _YARN,
            "one head of keys": _MQA,
            "linear": _rope("linear", factor=2.0),
            "llama3": _rope("llama3", **_LLAMA3),
        },
    ),
    "qwen3": (
        {**_SMALL, "head_dim": 16},
        {
            "tied": TIED,
            "untied": UNTIED,
            "wide heads": {"head_dim": 32},
            "biases": {"attention_bias": True},
            "windows": _SLIDING,
            "yarn": _YARN,
            "one head of keys": _MQA,
        },
    ),
    "qwen2_moe": (
        {**_SMALL, **_QWEN_EXPERTS, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1},
        {
            "tied": TIED,
            "untied": UNTIED,
            "every second": {"decoder_sparse_step": 2},
            "a dense layer": {"mlp_only_layers": [0]},
            "normed choice": {"norm_topk_prob": True},
            "no biases": {"qkv_bias": False},
            "5 experts, 3 chosen": {"num_experts": 5, "num_experts_per_tok": 3},
        },
    ),
    "qwen3_moe": (
        {**_SMALL, **_QWEN_EXPERTS, "head_dim": 16, "decoder_sparse_step": 1, "norm_topk_prob": True},
        {
            "tied": TIED,
            "untied": UNTIED,
            "choice as it is": {"norm_topk_prob": False},
            "every second": {"decoder_sparse_step": 2},
            "a dense layer": {"mlp_only_layers": [0]},
            "5 experts, 3 chosen": {"num_experts": 5, "num_experts_per_tok": 3},
            "biases": {"attention_bias": True},
        },
    ),
    "phi3": (
        {**_SMALL, "sliding_window": None, "original_max_position_embeddings": 128},
        {
            "tied": TIED,
            "untied": UNTIED,
            "half rotated": _rope("default", partial_rotary_factor=0.5),
            "window 8": _WINDOW,
            "window of the context": {"sliding_window": 128},
            "longrope": _longrope(8),
            "longrope, own factor": _longrope(8, attention_factor=1.4),
            "one head of keys": _MQA,
            "longrope, half rotated": _longrope(4, partial_rotary_factor=0.5),
        },
    ),
    "gemma": (
        {**_SMALL, "head_dim": 16},
        {"tied": TIED, "untied": UNTIED, "wide heads": {"head_dim": 32}, "one head of keys": _MQA}
        | {"biases": {"attention_bias": True}},
    ),
    "gemma2": (
        {**_SMALL, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8},
        {
            "tied": TIED,
            "untied": UNTIED,
            "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
            "scores of 32": {"query_pre_attn_scalar": 32},
            "all windows": {"layer_types": _kinds("ss")},
            "no windows": {"layer_types": _kinds("ff")},
            "windows last": {"layer_types": _kinds("fs")},
        },
    ),
    "gemma3_text": (
        {**_SMALL, **_LAYERS4, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8},
        {
            "tied": TIED,
            "untied": UNTIED,
            "all windows": {"layer_types": _kinds("ssss")},
            "no windows": {"layer_types": _kinds("ffff")},
            "windows first and last": {"layer_types": _kinds("sffs")},
            "scores of 32": {"query_pre_attn_scalar": 32},
            "cap": {"final_logit_softcapping": 5.0},
            "biases": {"attention_bias": True},
            "linear": {
                "layer_types": _kinds("ssfs"),
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                },
            },
            "both ways": {"use_bidirectional_attention": True, "layer_types": _kinds("ssfs")},
        },
    ),
    "gpt2": (
        {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 1}
        | {"eos_token_id": 2},
        {
            "tied": TIED,
            "untied": UNTIED,
            "relu": {"activation_function": "relu"},
            "scores by layer": {"scale_attn_by_inverse_layer_idx": True},
            "scores as they are": {"scale_attn_weights": False},
            "width 100": {"n_inner": 100},
        },
    ),
    "gpt_neox": (
        _WITHOUT_KV,
        {
            "untied": UNTIED,
            "tied": TIED,
            "one after the other": {"use_parallel_residual": False},
            "no biases of attention": {"attention_bias": False},
            "5 heads, a third rotated": {"hidden_size": 60, "num_attention_heads": 5}
            | _rope("default", partial_rotary_factor=0.34),
            "all rotated": _rope("default", partial_rotary_factor=1.0),
            "relu": {"hidden_act": "relu"},
            "linear": _rope("linear", factor=2.0, partial_rotary_factor=0.5),
        },
    ),
    "gpt_oss": (
        {**_SMALL, **_EXPERTS, "head_dim": 16, "sliding_window": 8, **_rope("default")},
        {
            "untied": UNTIED,
            "tied": TIED,
            "yarn": _YARN,
            "yarn, fractions": _FREE,
            "no biases": {"attention_bias": False},
            "5 experts, 3 chosen": {"num_local_experts": 5, "num_experts_per_tok": 3},
            "no windows": {"layer_types": _kinds("ff")},
            "windows last": {"layer_types": _kinds("fs")},
        },
    ),
    "granite": (
        _SMALL,
        {
            "tied": TIED,
            "untied": UNTIED,
            "factors": {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "logits_scaling": 4.0}
            | {"residual_multiplier": 0.4},
            "biases": {"attention_bias": True, "mlp_bias": True},
            "linear": _rope("linear", factor=2.0),
            "llama3, high 3": _rope("llama3", **_LLAMA3 | {"high_freq_factor": 3.0}),
            "longrope": _longrope(8),
        },
    ),
    "granitemoe": (
        {**_SMALL, **_EXPERTS},
        {
            "tied": TIED,
            "untied": UNTIED,
            "5 experts, 3 chosen": {"num_local_experts": 5, "num_experts_per_tok": 3},
            "biases": {"attention_bias": True},
        },
    ),
    "lfm2": (
        {**_SMALL, "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        {
            "tied": TIED,
            "untied": UNTIED,
            "adjusted width": {"block_auto_adjust_ff_dim": True, "block_multiple_of": 8},
            "biases": {"conv_bias": True},
            "all attention": {"layer_types": _kinds("ff")},
            "two taps": {"conv_L_cache": 2},
        },
    ),
    "llama4_text": (
        {**_SMALL, **_LAYERS4, **_EXPERTS, "num_experts_per_tok": 1, "head_dim": 16, "intermediate_size_mlp": 80}
        | {"interleave_moe_layer_step": 1},
        {
            "untied": UNTIED,
            "tied": TIED,
            "every second": {"interleave_moe_layer_step": 2},
            "two layers": {"num_hidden_layers": 2},
            "no norms of heads": {"use_qk_norm": False},
            "two chosen": {"num_experts_per_tok": 2},
            "chunks of 7": {"attention_chunk_size": 7},
            "biases": {"attention_bias": True},
        },
    ),
    "mamba": (
        {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16},
        {
            "tied": TIED,
            "untied": UNTIED,
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
            "tied": TIED,
            "untied": UNTIED,
            "two groups": {"n_groups": 2},
            "3 taps": {"conv_kernel": 3},
            "biases": {"use_bias": True},
            "limits": {"time_step_limit": [0.05, 0.5]},
        },
    ),
    "falcon_h1": (
        {**_SMALL, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
        | {"mamba_chunk_size": 16, "head_dim": 16},
        {
            "tied": TIED,
            "untied": UNTIED,
            "norms": {"mamba_rms_norm": True, "mamba_norm_before_gate": False},
            "norms before": {"mamba_rms_norm": True, "mamba_norm_before_gate": True},
            "two groups": {"mamba_n_groups": 2},
            "factors": {"embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.7}
            | {"attention_out_multiplier": 0.8, "ssm_multipliers": [0.5, 0.7, 0.9, 1.1, 1.3], "ssm_in_multiplier": 1.2},
            "biases": {"attention_bias": True},
        },
    ),
    "olmo2": (
        _SMALL,
        {"untied": UNTIED, "tied": TIED, "yarn": _YARN, "biases": {"attention_bias": True}, "one head of keys": _MQA},
    ),
    "olmo3": (
        {**_SMALL, **_LAYERS4, "sliding_window": 8},
        {
            "untied": UNTIED,
            "tied": TIED,
            "windows last": {"layer_types": _kinds("ffss")},
            "no windows": {"layer_types": _kinds("ffff")},
            "yarn": _YARN,
        },
    ),
    "smollm3": (
        {**_SMALL, **_LAYERS4},
        {
            "tied": TIED,
            "untied": UNTIED,
            "all rotated": {"no_rope_layers": [1, 1, 1, 1]},
            "every second": {"no_rope_layer_interval": 2, "no_rope_layers": [1, 0, 1, 0]},
            "windows": {"use_sliding_window": True, "sliding_window": 8},
            "biases": {"attention_bias": True},
            "yarn": _YARN,
        },
    ),
    "stablelm": (
        _SMALL,
        {
            "untied": UNTIED,
            "tied": TIED,
            "side by side": {"use_parallel_residual": True},
            "norms of heads": {"qk_layernorm": True},
            "biases": {"use_qkv_bias": True},
            "three quarters rotated": _rope("default", partial_rotary_factor=0.75),
            "all at once": {**TIED, "use_parallel_residual": True, "qk_layernorm": True, "use_qkv_bias": True},
        },
    ),
    "starcoder2": (
        {**_SMALL, "sliding_window": None},
        {
            "tied": TIED,
            "untied": UNTIED,
            "no biases": {"use_bias": False},
            "exact GELU": {"hidden_act": "gelu"},
            "window 8": _WINDOW,
            "one head of keys": _MQA,
        },
    ),
    "cohere": (
        _SMALL,
        {
            "tied": TIED,
            "untied": UNTIED,
            "norms of heads": {"use_qk_norm": True},
            "biases": {"attention_bias": True},
            "scale 0.3": {"logit_scale": 0.3},
        },
    ),
    "cohere2": (
        {**_SMALL, **_LAYERS4, "sliding_window": 8, "head_dim": 16},
        {
            "tied": TIED,
            "untied": UNTIED,
            "every second": {"layer_types": _kinds("sfsf")},
            "all windows": {"layer_types": _kinds("ssss")},
            "biases": {"attention_bias": True},
        },
    ),
    "bert": (
        _ENCODER,
        {
            "gelu": {},
            "relu": {"hidden_act": "relu"},
            "tanh GELU": {"hidden_act": "gelu_new"},
            "one type": {"type_vocab_size": 1},
        }
        | {"masked": {"architectures": ["MaskedLM"]}, "epsilon 1e-5": {"layer_norm_eps": 1e-5}},
    ),
    "roberta": (
        _ENCODER,
        {"plain": {"type_vocab_size": 1}, "masked": {"architectures": ["MaskedLM"]}},
    ),
    "xlm-roberta": (
        _ENCODER,
        {"plain": {"type_vocab_size": 1}, "masked": {"architectures": ["MaskedLM"]}, "relu": {"hidden_act": "relu"}},
    ),
    "distilbert": (
        {"vocab_size": 128, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 128}
        | {"architectures": ["Model"]},
        {"gelu": {}, "relu": {"activation": "relu"}, "waves": {"sinusoidal_pos_embds": True}},
    ),
    "modernbert": (
        {**_ENCODER, **_LAYERS4, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
        {
            "plain": {},
            "biases": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
            "every second": {"layer_types": _kinds("fsfs")},
            "local 6": {"local_attention": 6},
            "relu": {"hidden_activation": "relu"},
        },
    ),
    "nomic_bert": (
        _ENCODER,
        {"plain": {}, "base 1000": _rope("default", rope_theta=1000.0), "masked": {"architectures": ["MaskedLM"]}},
    ),
}


def configurations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model type, name of the variant, and values of the configuration, of each."""
    for family, (usual, variants) in VARIANTS.items():
        for name, own in variants.items():
            yield family, name, {**usual, **own}
