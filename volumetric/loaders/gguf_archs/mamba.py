"""Mamba: state-space layers and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.layers import Mamba
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_states import BARE, BIASES, MIXER, SINGLES, without_attention
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
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


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
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


FAMILY = GGUFFamily(
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
    values=_values,
    metadata=_metadata,
)
