"""SmolLM3 (https://huggingface.co/blog/smollm3): Llama that leaves out the rotary embedding in every fourth layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.loaders.archs.llama import GGUF as LLAMA
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import pre_norm_decoder
from volumetric.loaders.tensor_source import TensorSource


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a SmolLM3 configuration."""
    layers = config.layers()
    rope = read_rope(config, head_dim(config), default_base=2_000_000.0)
    bias = config.flag("attention_bias", False)
    return pre_norm_decoder(
        config,
        ropes=[rope if turns else None for turns in _smollm3_rotary_layers(config, layers)],
        windows=read_windows(config, layers, switch=True),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
        tied=True,
    )


def _smollm3_rotary_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has a rotary embedding; 1 means yes in ``no_rope_layers``, against its name."""
    listed = config.items("no_rope_layers", layers)
    if listed is None:
        interval = config.integer("no_rope_layer_interval", 4)
        return [(i + 1) % interval != 0 for i in range(layers)]
    if any(value not in (0, 1) for value in listed):
        raise CheckpointError(f"{config.where}: no_rope_layers holds other values than 0 and 1")
    return [value == 1 for value in listed]


_INTERVAL: Final = 4
"""Constant in llama.cpp's code."""


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    layers = metadata.layers("block_count")
    return {
        **LLAMA.values(metadata, file),
        "no_rope_layer_interval": _INTERVAL,
        "no_rope_layers": [int((i + 1) % _INTERVAL != 0) for i in range(layers)],
    }


UNSEEN = ("no_rope_layers",)
GGUF = GGUFFamily(
    architecture="smollm3",
    model_type="smollm3",
    auto_class="SmolLM3ForCausalLM",
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v"}),
    values=_read_gguf,
)
"""SmolLM3. Every fourth layer has no RoPE; the files do not contain this."""
