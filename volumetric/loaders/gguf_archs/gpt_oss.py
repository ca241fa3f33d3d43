"""gpt-oss: sinks of heads, windows in every second layer, experts with biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_experts import expert_values, small_expert_metadata
from volumetric.loaders.gguf_family import ATTENTION, GGUFFamily
from volumetric.loaders.gguf_rope import read_rope
from volumetric.loaders.gguf_windows import attentions, idle_window, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_TRUNCATE: Final = "rope.scaling.yarn_truncate"
"""Key of our own, which llama.cpp leaves alone."""
_AFTER_TOP_K: Final = 3
"""llama.cpp's number of the gating by a softmax of the chosen logits."""


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    layers = given.layers("block_count")
    rope = read_rope(given, file, given.integer("attention.key_length"))
    if rope["rope_type"] == "yarn":
        # llama.cpp rounds the two ends of the ramp; the model was trained without that, unless a file of ours says so.
        rope["truncate"] = given.flag(_TRUNCATE, False)
    values = expert_values(given, file, gatings=(0, _AFTER_TOP_K))
    return {
        **values,
        "intermediate_size": given.integer("expert_feed_forward_length", given.integer("feed_forward_length")),
        "layer_types": read_pattern(given, layers, default=2),
        "sliding_window": given.integer("attention.sliding_window", 128),
        "rope_parameters": rope,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    widths = small_expert_metadata(
        config.with_values(moe_intermediate_size=config.integer("intermediate_size")), network
    )
    ropes = [spec.rope for spec in attentions(network) if spec.rope is not None and spec.rope.scaling == "yarn"]
    truncate = {_TRUNCATE: np.bool_(True)} if any(rope.truncate for rope in ropes) else {}
    return {**widths, **truncate, **(pattern_of(network) or idle_window(config))}


FAMILY = GGUFFamily(
    model_type="gpt_oss",
    auto_class="GptOssForCausalLM",
    inner={
        **ATTENTION,
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "mlp.router": "ffn_gate_inp",
        "mlp.experts.down_proj": "ffn_down_exps",
        "self_attn.sinks": "attn_sinks",
    },
    split={"mlp.experts.gate_up_proj": {"gate": "ffn_gate_exps", "up": "ffn_up_exps"}},
    biases=frozenset({*ATTENTION.values(), "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}),
    head="own",
    values=_values,
    metadata=_metadata,
)
