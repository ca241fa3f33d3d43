"""Llama 4: chunks, layers that do not turn, experts in every so many layers; llama.cpp has most of it in its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.errors import CheckpointError, UnsupportedError
from volumetric.layers import Parallel, SwiGLU
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_experts import expert_metadata
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_STEP: Final = "interleave_moe_layer_step"
_CONSTANTS: Final[Mapping[str, Any]] = {
    "no_rope_layer_interval": 4,
    "attention_chunk_size": 8192,
    "attn_temperature_tuning": True,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
"""What files do not say."""
_WITHOUT_NORMS: Final = 128
"""Experts of the one model, Maverick, whose heads have no norms."""


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    window = given.integer("attention.sliding_window", 1, low=0)
    given.require("expert_weights_scale", 0.0, 1.0)
    count, layers, step = given.integer("expert_count"), given.layers("block_count"), given.integer(_STEP, low=0)
    if window == 0:
        raise UnsupportedError(
            f"{given.where}: attention.sliding_window=0, Llama 4 without chunks, is not supported",
            hint="the Hugging Face checkpoint says what its layers do",
        )
    mixed = range(step - 1, layers, step) if step else range(0)
    routers = {i: file.entries.get(f"blk.{i}.ffn_gate_inp.weight") for i in mixed}
    if any(router is None or router.shape[:1] != (count,) for router in routers.values()):
        raise CheckpointError(f"{given.where}: each layer of {list(mixed)[:4]}… needs a router of {count} experts")
    return {
        **_CONSTANTS,
        "intermediate_size": given.integer("expert_feed_forward_length"),
        "intermediate_size_mlp": given.integer("feed_forward_length"),
        "num_local_experts": count,
        "num_experts_per_tok": given.integer("expert_used_count"),
        "moe_layers": list(mixed),
        _STEP: max(step, 1),
        "use_qk_norm": count != _WITHOUT_NORMS,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    mixed = [isinstance(spec, Parallel) for spec in network.layers.values() if isinstance(spec, Parallel | SwiGLU)]
    step = mixed.index(True) + 1 if any(mixed) else 0
    if step == 0 or mixed != [(i + 1) % step == 0 for i in range(len(mixed))]:
        raise UnsupportedError(
            f"Llama 4 in GGUF files has experts in every so many layers, and not in {np.flatnonzero(mixed).tolist()}",
            hint="formats native and hf hold the model as it is",
        )
    return {
        **expert_metadata(config, network),
        "expert_feed_forward_length": np.uint32(config.integer("intermediate_size")),
        "feed_forward_length": np.uint32(config.integer("intermediate_size_mlp", 16384)),
        _STEP: np.uint32(step),
    }


FAMILY = GGUFFamily(
    model_type="llama4_text",
    auto_class="Llama4ForCausalLM",
    inner={
        **{name.replace("mlp.", "feed_forward."): own for name, own in PRE_NORM_LAYER.items()},
        "feed_forward.router": "ffn_gate_inp",
        "feed_forward.experts.down_proj": "ffn_down_exps",
        **{f"feed_forward.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")},
    },
    split={"feed_forward.experts.gate_up_proj": {"gate": "ffn_gate_exps", "up": "ffn_up_exps"}},
    interleaved=True,
    factors=True,
    values=_values,
    metadata=_metadata,
)
