"""Mixtures of experts: a router, and gated MLPs of which each row takes a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from volumetric.errors import CheckpointError
from volumetric.layers import Gate, Parallel, SwiGLU
from volumetric.loaders.chain import Stored
from volumetric.loaders.hf_config import MAX_LAYERS, Config
from volumetric.loaders.pre_norm import MLP_NAMES, Block

MAX_EXPERTS: Final = 4096
"""No model has a fourth of it."""


def experts(
    config: Config, *, count: int, hidden: int, path: str = "mlp", names: Mapping[str, Stored] = MLP_NAMES
) -> Block:
    """Return a mixture whose experts have tensors of their own.

    Parameters
    ----------
    count : experts
    hidden : width inside of an expert
    path : where router and experts stand below their layer
    names : what the projections of an expert are called
    """
    width, chosen = config.integer("hidden_size"), config.integer("num_experts_per_tok", 2)
    if not chosen <= count <= MAX_EXPERTS:
        raise CheckpointError(f"{config.where}: {chosen} of {count} experts cannot be chosen, of at most {MAX_EXPERTS}")
    if config.tensors is not None and 3 * count > config.tensors:
        raise CheckpointError(f"{config.where}: {count} experts, and the weights have {config.tensors} tensors in all")
    expert = SwiGLU(in_features=width, hidden_features=hidden, activation=config.activation("hidden_act", "silu"))
    gate = Gate(in_features=width, out_features=count, top_k=chosen)
    stored: dict[str, Stored] = {"gate/weight": "gate.weight"}
    stored |= {f"{i}/{part}": f"experts.{i}.{name}" for i in range(count) for part, name in names.items()}
    return Block(Parallel(branches=(expert,) * count, combine="filter", gate=gate), path, stored)


def expert_count(config: Config, default: int) -> int:
    """Number of experts, which goes by two names."""
    return config.integer("num_local_experts", config.integer("num_experts", default))


def mixture_layers(config: Config, mixture: Block, dense: Block) -> list[Block]:
    """Second block of each layer: the mixture in every so many of them, but for those that are listed as dense."""
    layers, every = config.layers(), config.integer("decoder_sparse_step", 1)
    listed = config.values.get("mlp_only_layers") or []
    if not isinstance(listed, list) or len(listed) > MAX_LAYERS or any(type(i) is not int for i in listed):
        raise CheckpointError(f"{config.where}: mlp_only_layers is no list of layers")
    sparse = [i not in listed and (i + 1) % every == 0 for i in range(layers)]
    return [mixture if mixed else dense for mixed in sparse]
