"""ModernBERT: pre-norm blocks that see both ways; two of three see a window, and turn by a base of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.bert import read_encoder, write_encoder
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_windows import KEY, attentions, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_LOCAL_BASE: Final = "rope.freq_base_swa"
_BASE: Final = 10_000.0


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    given.require("rope.scaling.type", "none")
    layers = given.layers("block_count")
    if isinstance(given.values.get(KEY), np.ndarray):
        kinds = read_pattern(given, layers, default=3)
    else:  # the first of so many layers sees everything, where in other architectures it is the last one
        period = given.integer(KEY, 3)
        kinds = ["sliding_attention" if i % period else "full_attention" for i in range(layers)]
    full, local = given.number("rope.freq_base", _BASE), given.number(_LOCAL_BASE, _BASE)
    return {
        **read_encoder(given, file),
        "hidden_activation": given.values.get("hidden_activation", "gelu"),
        "local_attention": given.integer("attention.sliding_window"),
        "layer_types": kinds,
        "global_rope_theta": full,
        "local_rope_theta": local,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in (("full_attention", full), ("sliding_attention", local))
        },
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    layers = attentions(network)
    local = {spec.rope.base for spec in layers if spec.rope is not None and spec.window is not None}
    activation = config.values.get("hidden_activation")
    return {
        **write_encoder(config, network),
        "attention.sliding_window": np.uint32(config.integer("local_attention", 128)),
        KEY: np.array([spec.window is not None for spec in layers]),
        _LOCAL_BASE: np.float32(local.pop() if local else _BASE),
        "rope.scaling.type": "none",
        **({"hidden_activation": activation} if isinstance(activation, str) else {}),
    }


FAMILY = GGUFFamily(
    model_type="modernbert",
    auto_class="ModernBertModel",
    inner={
        "attn_norm": "attn_norm",
        "attn.Wqkv": "attn_qkv",
        "attn.Wo": "attn_output",
        "mlp_norm": "ffn_norm",
        "mlp.Wi": "ffn_up",
        "mlp.Wo": "ffn_down",
    },
    outer={
        "model.embeddings.tok_embeddings": "token_embd",
        "model.embeddings.norm": "token_embd_norm",
        "model.final_norm": "output_norm",
    },
    stack="model.layers",
    renamed={"num_key_value_heads": None, "head_dim": None, "hidden_act": None},
    epsilon="norm_eps",
    rms=False,
    head="shared",
    values=_values,
    metadata=_metadata,
)
