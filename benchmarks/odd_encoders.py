"""Encoders in odd configurations; decoders stand in `odd_configurations`, which gives both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odd_pieces import ENCODER, LAYERS4, MASKED, RELU, Values, kinds, rope

ENCODERS: Final[Mapping[str, tuple[Values, Mapping[str, Values]]]] = {
    "bert": (
        ENCODER,
        {"gelu": {}, **RELU, "tanh GELU": {"hidden_act": "gelu_new"}, "one type": {"type_vocab_size": 1}}
        | {**MASKED, "epsilon 1e-5": {"layer_norm_eps": 1e-5}},
    ),
    "roberta": (ENCODER, {"plain": {"type_vocab_size": 1}, **MASKED}),
    "xlm-roberta": (ENCODER, {"plain": {"type_vocab_size": 1}, **MASKED, **RELU}),
    "distilbert": (
        {"vocab_size": 128, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 128}
        | {"architectures": ["Model"]},
        {"gelu": {}, "relu": {"activation": "relu"}, "waves": {"sinusoidal_pos_embds": True}},
    ),
    "modernbert": (
        {**ENCODER, **LAYERS4, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
        {
            "plain": {},
            "biases": {"attention_bias": True, "mlp_bias": True, "norm_bias": True},
            "every second": {"layer_types": kinds("fsfs")},
            "local 6": {"local_attention": 6},
            "relu": {"hidden_activation": "relu"},
        },
    ),
    "nomic_bert": (ENCODER, {"plain": {}, "base 1000": rope("default", rope_theta=1000.0), **MASKED}),
}
