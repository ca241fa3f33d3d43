"""Granite 3 MoE (https://hf.co/ibm-granite): Granite with mixtures of experts, stacked in two tensors of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.archs.granite import GGUF as GRANITE
from volumetric.loaders.archs.granite import granite_decoder, read_factors, write_factors
from volumetric.loaders.expert_layers import expert_count, stacked_experts
from volumetric.loaders.gguf_family import ATTENTION, PRE_NORMS, GGUFFamily, expert_metadata, expert_values
from volumetric.loaders.hf_config import Config
from volumetric.loaders.name_rules import ModelBlueprint
from volumetric.loaders.tensor_source import TensorEntry, TensorSource
from volumetric.network import Network


def build(config: Config) -> ModelBlueprint:
    """Network and rules of a Granite MoE configuration."""
    mixture = stacked_experts(
        config,
        count=expert_count(config, 8),
        hidden=config.integer("intermediate_size"),
        path="block_sparse_moe",
        router="router.layer.weight",
        inner="input_linear",
        outer="output_linear",
    )
    return granite_decoder(config, mixture)


def evidence(entries: Mapping[str, TensorEntry], known: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Sizes of experts in stacked tensors."""
    del known
    shapes = (entry.shape for name, entry in entries.items() if name.endswith("output_linear.weight"))
    stacked = next((shape for shape in shapes if len(shape) == 3), None)
    if stacked is None:
        return {}
    return {
        "num_local_experts": (stacked[0], "number of stacked experts"),
        "intermediate_size": (stacked[2], "width of an expert"),
    }


def _read_gguf(metadata: Config, file: TensorSource) -> Mapping[str, Any]:
    metadata.require("expert_shared_feed_forward_length", 0)
    biased = "blk.0.attn_q.bias" in file.entries
    return {"attention_bias": biased, **read_factors(metadata), **expert_values(metadata, file)}


def _write_gguf(config: Config, network: Network) -> Mapping[str, Any]:
    return {**write_factors(config, network), **expert_metadata(config, network)}


_PAIR = "block_sparse_moe.input_linear"

GGUF = GGUFFamily(
    architecture="granitemoe",
    model_type="granitemoe",
    auto_class="GraniteMoeForCausalLM",
    inner={
        **PRE_NORMS,
        **ATTENTION,
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.output_linear": "ffn_down_exps",
    },
    split={_PAIR: {"gate": "ffn_gate_exps", "up": "ffn_up_exps"}},
    interleaved=True,
    biases=frozenset({"attn_q", "attn_k", "attn_v", "attn_output"}),
    factors=GRANITE.factors,
    longrope=GRANITE.longrope,
    values=_read_gguf,
    metadata=_write_gguf,
)
"""Granite 3 MoE: Granite with a mixture in every layer; files store gate and up projections separately."""
