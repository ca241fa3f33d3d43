"""Mamba (https://arxiv.org/abs/2312.00752): selective state-space layers and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.layers import Mamba
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_states import BARE, BIASES, MIXER, SINGLES, without_attention
from volumetric.loaders.hf_config import Config
from volumetric.loaders.mamba_layers import state_space_decoder
from volumetric.loaders.names import Blueprint
from volumetric.loaders.source import TensorSource
from volumetric.network import Network


def build(config: Config) -> Blueprint:
    """Network and rules of a Mamba configuration."""
    hidden = config.integer("hidden_size")
    rank = None if config.values.get("time_step_rank") == "auto" else config.integer("time_step_rank", -(-hidden // 16))
    mixer = Mamba(
        embed_dim=hidden,
        inner_features=config.integer("intermediate_size", int(config.number("expand", 2.0) * hidden)),
        state_size=config.integer("state_size", 16),
        dt_rank=-(-hidden // 16) if rank is None else rank,
        kernel_size=config.integer("conv_kernel", 4, low=2),
        bias=config.flag("use_bias", False),
        conv_bias=config.flag("use_conv_bias", True),
    )
    return state_space_decoder(config, mixer, tied=True)


def _read_gguf(given: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    given.require("ssm.dt_b_c_rms", False)  # true of FalconMamba, which norms steps, inputs and outputs of the scan
    return {
        "intermediate_size": given.integer("ssm.inner_size"),
        "state_size": given.integer("ssm.state_size"),
        "time_step_rank": given.integer("ssm.time_step_rank"),
        "conv_kernel": given.integer("ssm.conv_kernel", low=2),
        "use_bias": False,
        "use_conv_bias": True,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixer = next(spec for spec in network.layers.values() if isinstance(spec, Mamba))
    if mixer.inner_features != 2 * mixer.embed_dim:
        raise UnsupportedError(
            f"Mamba in GGUF files scans 2 x {mixer.embed_dim} channels, and the model {mixer.inner_features}",
            hint="formats native and hf hold the model as it is",
        )
    return {
        **without_attention(),
        "ssm.inner_size": np.uint32(mixer.inner_features),
        "ssm.state_size": np.uint32(mixer.state_size),
        "ssm.time_step_rank": np.uint32(mixer.dt_rank),
        "ssm.conv_kernel": np.uint32(mixer.kernel_size),
    }


GGUF = GGUFFamily(
    architecture="mamba",
    model_type="mamba",
    auto_class="MambaForCausalLM",
    inner={"norm": "attn_norm", **{f"mixer.{name}": own for name, own in MIXER.items()}},
    outer={"backbone.embeddings": "token_embd", "backbone.norm_f": "output_norm", "lm_head": "output"},
    stack="backbone.layers",
    epsilon="layer_norm_epsilon",
    rms=True,
    biases=BIASES,
    singles=SINGLES,
    bare=BARE,
    attends=False,
    values=_read_gguf,
    metadata=_write_gguf,
)
