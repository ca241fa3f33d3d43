"""Llama 4 (https://ai.meta.com/blog/llama-4-multimodal-intelligence): chunks, NoPE layers, top-1 experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.layers import MultiHeadAttention, Parallel, SwiGLU
from volumetric.loaders.decoder import head_dim
from volumetric.loaders.expert_layers import expert_count, mixture
from volumetric.loaders.gguf_family import PRE_NORM_LAYER, GGUFFamily, expert_metadata
from volumetric.loaders.gguf_windows import attentions
from volumetric.loaders.hf_config import MAX_LAYERS, Config, kinds_of_layers
from volumetric.loaders.hf_rope import read_rope
from volumetric.loaders.name_rules import FusedRows, ModelBlueprint
from volumetric.loaders.network_builder import InterleavedHeads, StackedTensor, StoredForm
from volumetric.loaders.pre_norm import (
    ATTENTION_NAMES,
    MLP_NAMES,
    BlockLayer,
    attention_blocks,
    gated_mlp,
    pre_norm_stack,
    rms_norm,
)
from volumetric.loaders.tensor_source import TensorEntry, TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Llama 4 text configuration."""
    layers = config.layers()
    dense = gated_mlp(config.with_values(intermediate_size=config.integer("intermediate_size_mlp", 16384)))
    dense, mixed = BlockLayer(dense.spec, "feed_forward", MLP_NAMES), _experts(config)
    sparse = _sparse(config, layers)
    feeds = [mixed if i in sparse else dense for i in range(layers)]
    return pre_norm_stack(config, rms_norm(config, eps=1e-5), _attentions(config, layers), feeds)


def _attentions(config: Config, layers: int) -> list[BlockLayer]:
    """Attention of each layer: layers with RoPE normalise heads without gains; others scale queries by position."""
    heads, bias = config.integer("num_attention_heads"), config.flag("attention_bias", False)
    names: dict[str, StoredForm] = {
        **ATTENTION_NAMES,
        "q": InterleavedHeads("q_proj", heads),
        "k": InterleavedHeads("k_proj", config.integer("num_key_value_heads", heads)),
    }
    rope = read_rope(config, head_dim(config), default_base=500_000.0)
    turning = _rotary_layers(config, layers)
    ropes = [rope if turns else None for turns in turning]
    blocks = attention_blocks(config, ropes, [None] * layers, names, qkv_bias=bias, out_bias=bias)
    tuned = True
    if config.has("attn_temperature_tuning"):
        tuned = config.values["attn_temperature_tuning"]  # a number in the first checkpoints
    if type(tuned) not in (bool, int):
        raise CheckpointError(f"{config.where}: attn_temperature_tuning is {tuned!r}, expected true or false")
    flat: dict[str, Any] = {}
    if tuned:
        flat = {
            "temperature_scale": config.number("attn_scale", 0.1),
            "temperature_every": config.integer("floor_scale", 8192),
        }
    normed: dict[str, Any] = {}
    if config.flag("use_qk_norm", True):
        # Rotation keeps the length of a vector, so the norm can come before it.
        normed = {"qk_norm": True, "qk_norm_gain": False, "qk_norm_eps": config.number("rms_norm_eps", 1e-5)}
    layer_blocks: list[BlockLayer] = []
    for block, turns, chunk in zip(blocks, turning, _chunks(config, turning), strict=True):
        assert isinstance(block.spec, MultiHeadAttention)
        layer_blocks.append(replace(block, spec=replace(block.spec, chunk=chunk, **(normed if turns else flat))))
    return layer_blocks


def _rotary_layers(config: Config, layers: int) -> list[bool]:
    """Whether each layer has a rotary embedding; 1 means yes in ``no_rope_layers``, against its name."""
    if not (
        config.has("no_rope_layers") and config.values["no_rope_layers"]
    ):  # published configurations have an empty list
        every = config.integer("no_rope_layer_interval", 4)
        return [(i + 1) % every != 0 for i in range(layers)]
    listed = config.items("no_rope_layers", layers) or ()
    if any(value not in (0, 1) for value in listed):
        raise CheckpointError(f"{config.where}: no_rope_layers holds other values than 0 and 1")
    return [value == 1 for value in listed]


def _chunks(config: Config, turning: list[bool]) -> list[int | None]:
    """Chunk size of each layer in rows, None for full attention."""
    known = {"chunked_attention": config.integer("attention_chunk_size", 8192), "full_attention": None}
    kinds = config.items("layer_types", len(turning))
    if kinds is None:
        kinds = ["chunked_attention" if turns else "full_attention" for turns in turning]
    return kinds_of_layers(config.where, kinds, known)


def _sparse(config: Config, layers: int) -> set[int]:
    """Layers with a mixture of experts."""
    if not config.has("moe_layers"):
        every = config.integer("interleave_moe_layer_step", 1)
        return set(range(every - 1, layers, every))
    listed = config.values["moe_layers"]
    if not isinstance(listed, list) or len(listed) > MAX_LAYERS or any(type(i) is not int for i in listed):
        raise CheckpointError(f"{config.where}: moe_layers is not a list of layers")
    return set(listed)


def _experts(config: Config) -> BlockLayer:
    """The mixture, whose weights multiply the input of an expert, plus an expert for all rows."""
    config = config.with_values(num_experts_per_tok=config.integer("num_experts_per_tok", 1))
    count, width, hidden = expert_count(config, 16), config.integer("hidden_size"), config.integer("intermediate_size")
    activation = config.activation("hidden_act", "silu")
    expert = SwiGLU(in_features=width, hidden_features=hidden, activation=activation)
    routed = replace(mixture(config, expert, count, "sigmoid"), weigh="input")
    stored: dict[str, StoredForm] = {"0/gate/weight": "router.weight"}
    for i in range(count):
        start, middle, stop = (hidden * (2 * i + part) for part in range(3))
        stored[f"0/{i}/gate"] = StackedTensor("experts.gate_up_proj", FusedRows(start, middle, stack=count))
        stored[f"0/{i}/up"] = StackedTensor("experts.gate_up_proj", FusedRows(middle, stop, stack=count))
        stored[f"0/{i}/down"] = StackedTensor("experts.down_proj", FusedRows(i * width, (i + 1) * width, stack=count))
    stored |= {f"1/{part}": f"shared_expert.{name}" for part, name in MLP_NAMES.items()}
    return BlockLayer(Parallel(branches=(routed, expert), combine="add"), "feed_forward", stored)


_STEP: Final = "interleave_moe_layer_step"
_CONSTANTS: Final[Mapping[str, Any]] = {
    "no_rope_layer_interval": 4,
    "attention_chunk_size": 8192,
    "attn_temperature_tuning": True,
    "floor_scale": 8192,
    "attn_scale": 0.1,
}
"""Values that the files do not contain."""
_WITHOUT_NORMS: Final = 128
"""Number of experts of Maverick, the only model without head norms."""


def evidence(entries: Mapping[str, TensorEntry], known: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Widths: the name of the MLP's width in other families is that of the experts here; the MLP's has another name."""
    shapes = (entry.shape for name, entry in entries.items() if name.endswith(".feed_forward.down_proj.weight"))
    dense = next((shape for shape in shapes if len(shape) == 2), None)
    shared = any(".feed_forward.shared_expert." in name for name in entries)
    values: dict[str, tuple[Any, str]] = {}
    if dense is not None:
        values["intermediate_size_mlp"] = values["intermediate_size"] = dense[1], "width of an MLP without experts"
    if (dense is not None or shared) and "moe_intermediate_size" in known:
        values["intermediate_size"] = known["moe_intermediate_size"], "width of an expert"
    return values


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    """Return the values that only Llama 4 has: widths, numbers of experts, and layers with experts."""
    window = metadata.integer("attention.sliding_window", 1, low=0)
    metadata.require("expert_weights_scale", 0.0, 1.0)
    count, layers, step = (
        metadata.integer("expert_count"),
        metadata.layers("block_count"),
        metadata.integer(_STEP, low=0),
    )
    if window == 0:
        raise UnsupportedError(
            f"{metadata.where}: attention.sliding_window=0, Llama 4 without chunks, is not supported",
            hint="open the Hugging Face checkpoint instead",
        )
    mixed = range(step - 1, layers, step) if step else range(0)
    routers = {i: file.entries.get(f"blk.{i}.ffn_gate_inp.weight") for i in mixed}
    if any(router is None or router.shape[:1] != (count,) for router in routers.values()):
        raise CheckpointError(f"{metadata.where}: each layer of {list(mixed)[:4]}… needs a router of {count} experts")
    return {
        **_CONSTANTS,
        "intermediate_size": metadata.integer("expert_feed_forward_length"),
        "intermediate_size_mlp": metadata.integer("feed_forward_length"),
        "num_local_experts": count,
        "num_experts_per_tok": metadata.integer("expert_used_count"),
        "moe_layers": list(mixed),
        _STEP: max(step, 1),
        "use_qk_norm": count != _WITHOUT_NORMS,
    }


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    mixed = [isinstance(spec, Parallel) for spec in network.layers.values() if isinstance(spec, Parallel | SwiGLU)]
    step = mixed.index(True) + 1 if any(mixed) else 0
    if step == 0 or mixed != [(i + 1) % step == 0 for i in range(len(mixed))]:
        raise UnsupportedError(
            f"Llama 4 in GGUF files must have experts at a fixed interval of layers, not in layers "
            f"{np.flatnonzero(mixed).tolist()}",
            hint="use format native or hf",
        )
    return {
        **expert_metadata(config, network),
        "expert_feed_forward_length": np.uint32(config.integer("intermediate_size")),
        "feed_forward_length": np.uint32(config.integer("intermediate_size_mlp", 16384)),
        _STEP: np.uint32(step),
    }


def _differences(network: Network) -> list[str]:
    few = len(attentions(network)) < _SCALED_EVERY
    return [f"it aborts with an assertion if Llama 4 has less than {_SCALED_EVERY} layers"] if few else []


_SCALED_EVERY: Final = 4
"""Interval of layers whose scores are scaled by position."""


UNSEEN = ("use_qk_norm", "attention_chunk_size", "attn_scale", "floor_scale", "no_rope_layers")
GGUF = GGUFFamily(
    architecture="llama4",
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
    values=_read_gguf,
    metadata=_write_gguf,
    differences=_differences,
)
"""Llama 4: chunks, NoPE layers, experts at a fixed interval; most of it is constant in llama.cpp's code."""
