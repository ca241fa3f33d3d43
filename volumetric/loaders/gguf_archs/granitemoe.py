"""Granite 3 MoE: Granite with a mixture in every layer, whose gates and projections files have apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_archs.granite import FAMILY as GRANITE
from volumetric.loaders.gguf_archs.granite import read_factors, write_factors
from volumetric.loaders.gguf_experts import expert_metadata, expert_values
from volumetric.loaders.gguf_family import ATTENTION, PRE_NORMS, GGUFFamily
from volumetric.loaders.hf_config import Config
from volumetric.network import Network


def _values(given: Config, file: GGUFSource) -> Mapping[str, Any]:
    given.require("expert_shared_feed_forward_length", 0)
    biased = "blk.0.attn_q.bias" in file.entries
    return {"attention_bias": biased, **read_factors(given), **expert_values(given, file)}


def _metadata(config: Config, network: Network) -> Mapping[str, Any]:
    return {**write_factors(config, network), **expert_metadata(config, network)}


_PAIR = "block_sparse_moe.input_linear"

FAMILY = GGUFFamily(
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
    values=_values,
    metadata=_metadata,
)
