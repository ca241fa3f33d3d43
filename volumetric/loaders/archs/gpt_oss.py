"""gpt-oss (arXiv 2508.10925): heads with sinks, windows in every second layer, clamped gates in mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from volumetric.layers import SwiGLU
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.expert_layers import expert_count, mixture
from volumetric.loaders.gguf_family import ATTENTION, GGUFFamily, expert_values, small_expert_metadata
from volumetric.loaders.gguf_rope import read_rope as read_gguf_rope
from volumetric.loaders.gguf_windows import attentions, idle_window, pattern_of, read_pattern
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import StackedTensor, StoredForm
from volumetric.loaders.pre_norm import BlockLayer, attention_blocks, pre_norm_stack, rms_norm
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network

ROPE: Final[dict[str, Any]] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "truncate": False,
}
"""Default if the configuration does not have it."""


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a gpt-oss configuration."""
    config.require("hidden_act", "silu")
    config.require("swiglu_alpha", 1.702)  # that of quick_gelu
    layers, bias = config.layers(), config.flag("attention_bias", True)
    window = config.integer("sliding_window", 128)
    has_rope = config.has("rope_parameters") or config.has("rope_scaling")
    turning = config if has_rope else config.with_values(rope_scaling=ROPE)
    attentions = attention_blocks(
        config,
        [read_rope(turning, head_dim(config), default_base=150_000.0)] * layers,
        read_windows(config.with_values(sliding_window=window), layers, switch=False, full_every=2),
        qkv_bias=bias,
        out_bias=bias,
        sinks=True,
    )
    return pre_norm_stack(config, rms_norm(config, eps=1e-5), attentions, [_experts(config)] * layers)


def _experts(config: Config) -> BlockLayer:
    """The mixture of experts; rows of gate and up projection alternate in an expert."""
    config = config.with_values(num_experts_per_tok=config.integer("num_experts_per_tok", 4))
    count, width, hidden = expert_count(config, 128), config.integer("hidden_size"), config.integer("intermediate_size")
    expert = SwiGLU(
        in_features=width,
        hidden_features=hidden,
        activation="quick_gelu",
        bias=True,
        limit=config.number("swiglu_limit", 7.0),
        up_offset=1.0,
    )
    stored: dict[str, StoredForm] = {"gate/weight": "router.weight", "gate/bias": "router.bias"}
    for i in range(count):
        start, stop = 2 * hidden * i, 2 * hidden * (i + 1)
        stored[f"{i}/gate"] = StackedTensor("experts.gate_up_proj", FusedRows(start, stop, stack=count, step=2))
        stored[f"{i}/up"] = StackedTensor("experts.gate_up_proj", FusedRows(start + 1, stop, stack=count, step=2))
        stored[f"{i}/down"] = StackedTensor("experts.down_proj", FusedRows(i * width, (i + 1) * width, stack=count))
    return BlockLayer(mixture(config, expert, count, bias=True), "mlp", stored)


_TRUNCATE: Final = "rope.scaling.yarn_truncate"
"""A custom key, which llama.cpp ignores."""
_AFTER_TOP_K: Final = 3
"""llama.cpp's number for gating by a softmax of the chosen logits."""


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    layers = metadata.layers("block_count")
    rope = read_gguf_rope(metadata, file, metadata.integer("attention.key_length"))
    if rope["rope_type"] == "yarn":
        # llama.cpp rounds both ends of the ramp; the model was trained without rounding, unless our key says otherwise.
        rope["truncate"] = metadata.flag(_TRUNCATE, False)
    values = expert_values(metadata, file, gatings=(0, _AFTER_TOP_K))
    return {
        **values,
        "intermediate_size": metadata.integer("expert_feed_forward_length", metadata.integer("feed_forward_length")),
        "layer_types": read_pattern(metadata, layers, default=2),
        "sliding_window": metadata.integer("attention.sliding_window", 128),
        "rope_parameters": rope,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    widths = small_expert_metadata(
        config.with_values(moe_intermediate_size=config.integer("intermediate_size")), network
    )
    ropes = [spec.rope for spec in attentions(network) if spec.rope is not None and spec.rope.scaling == "yarn"]
    truncate = {_TRUNCATE: np.bool_(True)} if any(rope.truncate for rope in ropes) else {}
    return {**widths, **truncate, **(pattern_of(network) or idle_window(config))}


GGUF = GGUFFamily(
    architecture="gpt-oss",
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
    values=_read_gguf,
    metadata=_write_gguf,
)
"""gpt-oss: attention sinks, windows in every second layer, experts with biases."""
