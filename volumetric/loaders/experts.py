"""Mixtures of experts: a router, and gated MLPs of which each row takes a few."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.errors import CheckpointError
from volumetric.layers import Gate, Parallel, SwiGLU
from volumetric.loaders.chain import Stored
from volumetric.loaders.hf_config import Config
from volumetric.loaders.pre_norm import MLP_NAMES

MAX_EXPERTS = 4096


def experts(
    config: Config, *, count: int, hidden: int, names: Mapping[str, Stored] = MLP_NAMES
) -> tuple[Parallel, dict[str, Stored]]:
    """Return a mixture, and what its tensors are called where each expert has its own.

    Parameters
    ----------
    count : experts
    hidden : width inside of an expert
    names : what the projections of an expert are called
    """
    width, chosen = config.integer("hidden_size"), config.integer("num_experts_per_tok", 2)
    if not chosen <= count <= MAX_EXPERTS:
        raise CheckpointError(f"{config.where}: {chosen} of {count} experts cannot be chosen, of at most {MAX_EXPERTS}")
    expert = SwiGLU(in_features=width, hidden_features=hidden, activation=config.activation("hidden_act", "silu"))
    gate = Gate(in_features=width, out_features=count, top_k=chosen)
    spec = Parallel(branches=(expert,) * count, combine="filter", gate=gate)
    stored: dict[str, Stored] = {"gate/weight": "gate.weight"}
    stored |= {f"{i}/{part}": f"experts.{i}.{name}" for i in range(count) for part, name in names.items()}
    return spec, stored
