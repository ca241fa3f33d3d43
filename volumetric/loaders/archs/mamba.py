"""Mamba (https://arxiv.org/abs/2312.00752): only selective state-space layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.layers import Dense, Embedding, LayerSpec, Mamba, RMSNorm
from volumetric.loaders.gguf_family import GGUFFamily
from volumetric.loaders.gguf_states import BARE, BIASES, MIXER, SINGLES, without_attention
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network

CONTEXT = 1 << 20
"""Context length: states do not grow with the sequence, and configurations have no limit."""
MIXER_NAMES = {
    "in": "in_proj",
    "out": "out_proj",
    "x": "x_proj",
    "dt": "dt_proj",
    "conv": "conv1d",
    "a_log": "A_log",
    "d": "D",
}


def state_space_decoder(config: Config, mixer: LayerSpec, *, tied: bool) -> ModelBlueprint:
    """Build a decoder with the same mixer in each layer.

    Parameters
    ----------
    tied : default for whether embedding and head share weights
    """
    hidden, vocabulary = config.integer("hidden_size"), config.integer("vocab_size")
    config.require("hidden_act", "silu", "swish")
    norm = RMSNorm(num_features=hidden, eps=config.number("layer_norm_epsilon", 1e-5))
    chain = CheckpointNetworkBuilder()
    stream = embedding = chain.add(Embedding(num_embeddings=vocabulary, embedding_dim=hidden), "backbone.embeddings")
    for i in range(config.layers()):
        chain.next_plane()
        chain.add(norm, f"backbone.layers.{i}.norm")
        chain.add(mixer, f"backbone.layers.{i}.mixer", MIXER_NAMES)
        stream = chain.residual(stream)
    chain.next_plane()
    hidden_states = chain.add(norm, "backbone.norm_f")
    head = chain.add(Dense(in_features=hidden, out_features=vocabulary, bias=False), "lm_head")
    if config.flag("tie_word_embeddings", tied):
        chain.tie(embedding, head)
    return chain.blueprint(
        context_length=config.integer("max_position_embeddings", CONTEXT), prefix="backbone.", hidden=hidden_states
    )


def step_bounds(config: Config) -> tuple[float, float | None]:
    """Bounds of the steps of a Mamba-2 layer; the upper one may be infinite, as spelled in JSON."""
    limits = config.items("time_step_limit", 2)
    if limits is None:
        return 0.0, None
    high = limits[1]
    endless = high is None or high == float("inf") or high in ("inf", "Infinity")
    # transformers writes infinity as an object with its name
    endless = endless or (isinstance(high, dict) and high.get("__float__") == "Infinity")
    low = Config({"time_step_limit": limits[0]}, config.where).number("time_step_limit")
    return low, None if endless else Config({"time_step_limit": high}, config.where).number("time_step_limit")


def build(config: Config) -> ModelBlueprint:
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


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    del file
    metadata.require("ssm.dt_b_c_rms", False)  # true for FalconMamba, with norms in the scan
    return {
        "intermediate_size": metadata.integer("ssm.inner_size"),
        "state_size": metadata.integer("ssm.state_size"),
        "time_step_rank": metadata.integer("ssm.time_step_rank"),
        "conv_kernel": metadata.integer("ssm.conv_kernel", low=2),
        "use_bias": False,
        "use_conv_bias": True,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    mixer = next(spec for spec in network.layers.values() if isinstance(spec, Mamba))
    if mixer.inner_features != 2 * mixer.embed_dim:
        raise UnsupportedError(
            f"Mamba in GGUF files scans 2 x {mixer.embed_dim} channels, but the model has {mixer.inner_features}",
            hint="use format native or hf",
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
