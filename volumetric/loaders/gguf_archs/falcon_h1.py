"""Falcon-H1: attention and Mamba-2 side by side; its factors are in the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from volumetric.layers import Mamba2
from volumetric.loaders.archs.falcon_h1 import Factors
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import ATTENTION, GGUFFamily, Runs
from volumetric.loaders.gguf_states import BARE, BIASES, MIXER, SINGLES, read_sizes, size_metadata
from volumetric.loaders.hf_config import Config
from volumetric.network import Network

_MLP: Final = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    sizes = read_sizes(given)
    return {
        "mamba_d_ssm": sizes.channels,
        "mamba_n_heads": sizes.heads,
        "mamba_d_head": sizes.channels // sizes.heads,
        "mamba_d_state": sizes.state,
        "mamba_n_groups": sizes.groups,
        "mamba_d_conv": sizes.taps,
        "mamba_conv_bias": True,
        "mamba_rms_norm": "blk.0.ssm_norm.weight" in file.entries,
        "mamba_norm_before_gate": False,
        "mlp_bias": "blk.0.ffn_down.bias" in file.entries,
    }


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    return size_metadata(next(spec for spec in network.layers.values() if isinstance(spec, Mamba2)))


def _fold(config: Config, network: Network) -> tuple[Config, Mapping[str, Runs]]:
    """Move the factors of a configuration into tensors; the head is one of its own where its factor is another."""
    factors, mixer = Factors.of(config), next(spec for spec in network.layers.values() if isinstance(spec, Mamba2))
    embedding = config.number("embedding_multiplier", 1.0, low=-math.inf)
    head = config.number("lm_head_multiplier", 1.0, low=-math.inf)
    inner, (v, b, c) = mixer.inner, mixer.mixed
    plain = config.with_values(
        **dict.fromkeys(("attention_in_multiplier", "attention_out_multiplier", "key_multiplier"), 1.0),
        **dict.fromkeys(("ssm_in_multiplier", "ssm_out_multiplier"), 1.0),
        **dict.fromkeys(("embedding_multiplier", "lm_head_multiplier"), 1.0),
        ssm_multipliers=[1.0] * 5,
        mlp_multipliers=[1.0] * 2,
        tie_word_embeddings=config.flag("tie_word_embeddings", False) and head == embedding,
    )
    return plain, {
        "token_embd": embedding,
        "output": head,
        "attn_q": factors.attention_in,
        "attn_k": factors.attention_in * factors.key,
        "attn_v": factors.attention_in,
        "attn_output": factors.attention_out,
        "ssm_in": tuple(zip((inner, v, b, c, mixer.num_heads), mixer.multipliers, strict=True)),
        "ssm_out": factors.ssm_out,
        "ffn_gate": factors.gate,
        "ffn_down": factors.down,
    }


FAMILY = GGUFFamily(
    model_type="falcon_h1",
    auto_class="FalconH1ForCausalLM",
    inner={
        "input_layernorm": "attn_norm",
        "pre_ff_layernorm": "ffn_norm",
        **ATTENTION,
        **{f"mamba.{name}": own for name, own in MIXER.items()},
        **{f"feed_forward.{name}": own for name, own in _MLP.items()},
    },
    outer={"model.embed_tokens": "token_embd", "model.final_layernorm": "output_norm", "lm_head": "output"},
    biases=frozenset({*BIASES, *_MLP.values()}),
    singles=SINGLES,
    bare=BARE | {"ffn_norm"},
    fold=_fold,
    values=_values,
    metadata=_metadata,
)
