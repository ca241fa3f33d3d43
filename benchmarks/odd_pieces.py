"""Values of configurations that families of `odd_configurations` and `odd_encoders` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Values = dict[str, Any]

SMALL: Final[Values] = {
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
WITHOUT_KV: Final = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
ENCODER: Final = {**WITHOUT_KV, "architectures": ["Model"]}
TIED: Final[Values] = {"tie_word_embeddings": True}


def rope(kind: str, **values: Any) -> Values:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4} | values}


def longrope(pairs: int, **values: Any) -> Values:
    lists = {"short_factor": [1.0] * pairs, "long_factor": [1.0 + 0.5 * i for i in range(pairs)]}
    return rope("longrope", **lists, original_max_position_embeddings=32, **values) | {
        "original_max_position_embeddings": 32
    }


def kinds(text: str) -> list[str]:
    """Kinds of layers: s has a window, f sees all."""
    return [{"s": "sliding_attention", "f": "full_attention"}[letter] for letter in text]


YARN: Final = rope("yarn", factor=4.0, original_max_position_embeddings=32)
FREE: Final = rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False)
LLAMA3: Final = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MQA: Final[Values] = {"num_key_value_heads": 1}
WINDOW: Final[Values] = {"sliding_window": 8}
# What several families are tried with, by its name.
HEADS: Final[Mapping[str, Values]] = {"tied": TIED, "untied": {"tie_word_embeddings": False}}
ONE_HEAD: Final[Mapping[str, Values]] = {"one head of keys": MQA}
BIASES: Final[Mapping[str, Values]] = {"biases": {"attention_bias": True}}
WINDOWS: Final[Mapping[str, Values]] = {"window 8": WINDOW, "window of the context": {"sliding_window": 128}}
FIVE: Final[Mapping[str, Values]] = {"5 experts, 3 chosen": {"num_local_experts": 5, "num_experts_per_tok": 3}}
QWEN_FIVE: Final[Mapping[str, Values]] = {"5 experts, 3 chosen": {"num_experts": 5, "num_experts_per_tok": 3}}
MASKED: Final[Mapping[str, Values]] = {"masked": {"architectures": ["MaskedLM"]}}
RELU: Final[Mapping[str, Values]] = {"relu": {"hidden_act": "relu"}}
SLIDING: Final[Values] = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}

ROPES: Final[Mapping[str, Values]] = {
    "linear": rope("linear", factor=2.0),
    "yarn": YARN,
    "yarn, own factor": rope("yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=1.3),
    "yarn, mscale": rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=1.0),
    "yarn, other betas": rope("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=2.0),
    "yarn, fractions": FREE,
    "llama3": rope("llama3", **LLAMA3),
    "llama3, high 3": rope("llama3", **LLAMA3 | {"high_freq_factor": 3.0}),
    "llama3, low 0.5": rope("llama3", **LLAMA3 | {"low_freq_factor": 0.5}),
    "llama3, original 1000": rope("llama3", **LLAMA3 | {"original_max_position_embeddings": 1000}),
    "longrope": longrope(8),
    "dynamic": {**rope("dynamic", factor=2.0), "max_position_embeddings": 512},
    "base 5e5": rope("default", rope_theta=5e5),
}

EXPERTS: Final = {"num_local_experts": 4, "num_experts_per_tok": 2}
QWEN_EXPERTS: Final = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LAYERS4: Final = {"num_hidden_layers": 4}
