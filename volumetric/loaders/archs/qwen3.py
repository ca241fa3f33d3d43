"""Qwen3 (arXiv 2505.09388): Llama with normalised queries and keys, and a separate head width."""

from __future__ import annotations

from volumetric.loaders.gguf_family import HEAD_NORMS, PRE_NORM_LAYER, GGUFFamily
from volumetric.loaders.hf_config import Config, read_windows
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.pre_norm import pre_norm_decoder


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Qwen3 configuration."""
    layers = config.layers()
    bias = config.flag("attention_bias", False)
    # transformers uses 128 if head_dim is absent; hidden_size / heads would be wrong for most Qwen3 models.
    width = config.integer("head_dim", 128)
    return pre_norm_decoder(
        config.with_values(head_dim=width),
        ropes=[read_rope(config, width)] * layers,
        windows=read_windows(config, layers, switch=True),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
    )


GGUF = GGUFFamily(
    architecture="qwen3", model_type="qwen3", auto_class="Qwen3ForCausalLM", inner={**PRE_NORM_LAYER, **HEAD_NORMS}
)
