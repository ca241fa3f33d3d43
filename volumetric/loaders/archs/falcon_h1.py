"""Falcon-H1 (https://arxiv.org/abs/2507.22448): parallel attention and Mamba-2, and many multipliers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from volumetric.base.errors import CheckpointError
from volumetric.layers import Mamba2, MultiHeadAttention, Scale, SwiGLU
from volumetric.loaders.archs.mamba import MIXER_NAMES, step_bounds
from volumetric.loaders.decoder import stacked_decoder
from volumetric.loaders.gguf_family import ATTENTION, GGUFFamily, Runs
from volumetric.loaders.gguf_states import BARE, BIASES, MIXER, SINGLES, read_sizes, size_metadata
from volumetric.loaders.hf_config import Config
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.network_builder import CheckpointNetworkBuilder
from volumetric.loaders.pre_norm import ATTENTION_NAMES, MLP_NAMES, rms_norm
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network import Network
from volumetric.network.grid import Coord


class Multipliers(NamedTuple):
    """Factors of a configuration; 1 if absent.

    Attributes
    ----------
    mixed : factors on z, v, b, c and r of the state-space layer
    """

    attention_in: float
    attention_out: float
    key: float
    ssm_in: float
    ssm_out: float
    mixed: tuple[float, ...]
    gate: float
    down: float

    @classmethod
    def of(cls, config: Config) -> Multipliers:
        """Read the factors of a configuration, which may be negative."""
        gate, down = _several(config, "mlp_multipliers", 2)
        names = ("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "ssm_in_multiplier")
        single = [config.number(name, 1.0, low=-1e9) for name in (*names, "ssm_out_multiplier")]
        return cls(*single, mixed=_several(config, "ssm_multipliers", 5), gate=gate, down=down)


def _several(config: Config, name: str, count: int) -> tuple[float, ...]:
    if not config.has(name):
        return (1.0,) * count
    config.items(name, count)
    return config.numbers(name, low=-1e9)


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Falcon-H1 configuration."""
    factors, norm = Multipliers.of(config), rms_norm(config, 1e-5)
    attention, mixer, mlp = _attention(config, factors), _mixer(config, factors), _mlp(config, factors)

    def place(chain: CheckpointNetworkBuilder, i: int, prefix: str, stream: Coord) -> Coord:
        normed = chain.add(norm, f"{prefix}.input_layernorm")
        if attention.qkv_bias:
            _scale(chain, factors.attention_in)
        chain.add(attention, f"{prefix}.self_attn", ATTENTION_NAMES)
        _scale(chain, factors.attention_out * (1.0 if attention.qkv_bias else factors.attention_in))
        stream = chain.residual(stream)
        if mixer.bias and factors.ssm_in != 1:
            chain.set_source(normed, chain.add(Scale(factor=factors.ssm_in)))
            chain.add(mixer, f"{prefix}.mamba", MIXER_NAMES)
        else:
            chain.set_source(normed, chain.add(mixer, f"{prefix}.mamba", MIXER_NAMES))
        _scale(chain, factors.ssm_out)
        stream = chain.residual(stream)
        chain.add(norm, f"{prefix}.pre_ff_layernorm")
        chain.add(mlp, f"{prefix}.feed_forward", MLP_NAMES)
        _scale(chain, factors.down)
        return chain.residual(stream)

    return stacked_decoder(
        config,
        place,
        norm,
        tied=False,
        embedding_scale=config.number("embedding_multiplier", 1.0, low=-1e9),
        logit_scale=config.number("lm_head_multiplier", 1.0, low=-1e9),
        norm_name="model.final_layernorm",
    )


def _scale(chain: CheckpointNetworkBuilder, factor: float) -> None:
    if factor != 1:
        chain.add(Scale(factor=factor))


def _attention(config: Config, factors: Multipliers) -> MultiHeadAttention:
    """Attention; without biases the factors on its input and keys are in the scale of the scores."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    width = config.integer("head_dim", hidden // heads or 1)
    bias = config.flag("attention_bias", False)
    inside = 1.0 if bias else factors.attention_in**2
    return MultiHeadAttention(
        embed_dim=hidden,
        num_heads=heads,
        num_kv_heads=config.integer("num_key_value_heads", 8),
        head_dim=width,
        rope=read_rope(config, width),
        scale=width**-0.5 * factors.key * inside,
        qkv_bias=bias,
        out_bias=bias,
    )


def _mixer(config: Config, factors: Multipliers) -> Mamba2:
    """Build the Mamba-2 layer of a block; without biases its multipliers include that of the input."""
    hidden, heads = config.integer("hidden_size"), config.integer("mamba_n_heads", 128)
    d_ssm = config.values.get("mamba_d_ssm", 1024)
    inner = config.integer("mamba_expand", 2) * hidden if d_ssm is None else config.integer("mamba_d_ssm", 1024)
    width = inner // heads if config.values.get("mamba_d_head", "auto") == "auto" else config.integer("mamba_d_head")
    if heads * width != inner:
        raise CheckpointError(f"{config.where}: {heads} heads of {width} are not the {inner} channels of mamba_d_ssm")
    config.require("hidden_act", "silu", "swish")
    bias, norm = config.flag("mamba_proj_bias", False), config.flag("mamba_rms_norm", False)
    norm_first = config.flag("mamba_norm_before_gate", True)
    low, high = step_bounds(config)
    return Mamba2(
        embed_dim=hidden,
        num_heads=heads,
        head_dim=width,
        state_size=config.integer("mamba_d_state", 256),
        groups=config.integer("mamba_n_groups", 1),
        kernel_size=config.integer("mamba_d_conv", 4, low=2),
        bias=bias,
        out_bias=config.flag("projectors_bias", False),
        conv_bias=config.flag("mamba_conv_bias", True),
        norm=norm,
        norm_eps=config.number("rms_norm_eps", 1e-5),
        norm_before_gate=norm and norm_first,
        dt_min=low,
        dt_max=high,
        multipliers=tuple(m * (1.0 if bias else factors.ssm_in) for m in factors.mixed),
    )


def _mlp(config: Config, factors: Multipliers) -> SwiGLU:
    return SwiGLU(
        in_features=config.integer("hidden_size"),
        hidden_features=config.integer("intermediate_size"),
        activation=config.activation("hidden_act", "silu"),
        bias=config.flag("mlp_bias", False),
        gate_factor=factors.gate,
    )


_MLP: Final = {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    sizes = read_sizes(metadata)
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


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    del config
    return size_metadata(next(spec for spec in network.layers.values() if isinstance(spec, Mamba2)))


def _fold(config: Config, network: Network) -> tuple[Config, Mapping[str, Runs]]:
    """Move the factors of a configuration into tensors; the head becomes a separate tensor if its factor differs."""
    factors, mixer = Multipliers.of(config), next(spec for spec in network.layers.values() if isinstance(spec, Mamba2))
    embedding = config.number("embedding_multiplier", 1.0, low=-math.inf)
    head = config.number("lm_head_multiplier", 1.0, low=-math.inf)
    inner, (v, b, c) = mixer.inner, mixer.conv_width
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


UNSEEN = (
    *("attention_in_multiplier", "attention_out_multiplier", "key_multiplier", "mlp_multipliers"),
    *("ssm_in_multiplier", "ssm_out_multiplier", "ssm_multipliers", "embedding_multiplier", "lm_head_multiplier"),
)
GGUF = GGUFFamily(
    architecture="falcon-h1",
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
    values=_read_gguf,
    metadata=_write_gguf,
)
"""Falcon-H1: parallel attention and Mamba-2; its factors are in the weights."""
