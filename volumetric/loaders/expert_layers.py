"""Mixtures of experts: a router, and gated MLPs; each row uses a few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from volumetric.base.errors import CheckpointError
from volumetric.layers import Gate, Parallel, SwiGLU
from volumetric.layers.gate import Scoring
from volumetric.loaders.hf_config import MAX_LAYERS, Config
from volumetric.loaders.name_rules import FusedRows
from volumetric.loaders.network_builder import FusedTensor, StoredForm
from volumetric.loaders.pre_norm import MLP_NAMES, BlockLayer

MAX_EXPERTS: Final = 1024
"""Twice the maximum of known models."""


def experts(
    config: Config,
    *,
    count: int,
    hidden: int,
    path: str = "mlp",
    names: Mapping[str, StoredForm] = MLP_NAMES,
    scoring: Scoring = "softmax",
) -> BlockLayer:
    """Return a mixture whose experts have separate tensors.

    Parameters
    ----------
    count : number of experts
    hidden : hidden width of an expert
    path : path of router and experts below their layer
    names : names of the projections of an expert
    scoring : see `Gate`
    """
    if config.tensors is not None and 3 * count > config.tensors:
        raise CheckpointError(f"{config.where}: {count} experts, but the weights have only {config.tensors} tensors")
    spec = mixture(config, _expert(config, hidden), count, scoring)
    stored: dict[str, StoredForm] = {"gate/weight": "gate.weight"}
    stored |= {f"{i}/{part}": f"experts.{i}.{name}" for i in range(count) for part, name in names.items()}
    return BlockLayer(spec, path, stored)


def with_shared_expert(config: Config, mixture: BlockLayer, *, hidden: int) -> BlockLayer:
    """Return a mixture plus a shared expert for every row, weighted by the sigmoid of a separate logit.

    Parameters
    ----------
    hidden : hidden width of the shared expert
    """
    width = config.integer("hidden_size")
    gate = Gate(in_features=width, out_features=1, scoring="sigmoid")
    shared = Parallel(branches=(_expert(config, hidden),), combine="filter", gate=gate)
    stored: dict[str, StoredForm] = {f"0/{part}": name for part, name in mixture.names.items()}
    stored["1/gate/weight"] = "shared_expert_gate.weight"
    stored |= {f"1/0/{part}": f"shared_expert.{name}" for part, name in MLP_NAMES.items()}
    return BlockLayer(Parallel(branches=(mixture.spec, shared), combine="add"), mixture.path, stored)


def stacked_experts(
    config: Config, *, count: int, hidden: int, path: str, router: str, inner: str, outer: str
) -> BlockLayer:
    """Return a mixture whose experts are stacked in two tensors.

    Parameters
    ----------
    count, hidden, path : see `experts`
    router : name of the router's matrix
    inner, outer : names of the stacks: ``[count, 2 · hidden, width]``, with the gate before the up projection of each
        expert, and ``[count, width, hidden]``
    """
    spec, width = mixture(config, _expert(config, hidden), count), config.integer("hidden_size")
    stored: dict[str, StoredForm] = {"gate/weight": router}
    for i in range(count):
        start = 2 * hidden * i
        stored[f"{i}/gate"] = FusedTensor(inner, FusedRows(start, start + hidden, stack=count))
        stored[f"{i}/up"] = FusedTensor(inner, FusedRows(start + hidden, start + 2 * hidden, stack=count))
        stored[f"{i}/down"] = FusedTensor(outer, FusedRows(i * width, (i + 1) * width, stack=count))
    return BlockLayer(spec, path, stored)


def _expert(config: Config, hidden: int) -> SwiGLU:
    """The MLP of an expert."""
    width, activation = config.integer("hidden_size"), config.activation("hidden_act", "silu")
    return SwiGLU(in_features=width, hidden_features=hidden, activation=activation)


def scoring_of(config: Config) -> Scoring:
    """Scoring in a Qwen configuration: whether the weights of the chosen experts are normalised to sum to 1."""
    return "softmax" if config.flag("norm_topk_prob", False) else "softmax_all"


def mixture(
    config: Config, expert: SwiGLU, count: int, scoring: Scoring = "softmax", *, bias: bool = False
) -> Parallel:
    """Return the layer. The softmax of the chosen logits is that of all logits, normalised to sum to 1 again.

    Parameters
    ----------
    expert : the layer of each of the `count` experts
    scoring, bias : see `Gate`
    """
    width, chosen = config.integer("hidden_size"), config.integer("num_experts_per_tok", 2)
    if not chosen <= count <= MAX_EXPERTS:
        raise CheckpointError(
            f"{config.where}: cannot choose {chosen} of {count} experts (at most {MAX_EXPERTS} experts)"
        )
    gate = Gate(in_features=width, out_features=count, top_k=chosen, scoring=scoring, bias=bias)
    return Parallel(branches=(expert,) * count, combine="filter", gate=gate)


def expert_count(config: Config, default: int) -> int:
    """Number of experts, which has two names."""
    return config.integer("num_local_experts", config.integer("num_experts", default))


def mixture_layers(config: Config, mixture: BlockLayer, dense: BlockLayer) -> list[BlockLayer]:
    """Feed-forward block of each layer: the mixture at a fixed interval, except for layers listed as dense."""
    layers, every = config.layers(), config.integer("decoder_sparse_step", 1)
    listed = config.values.get("mlp_only_layers") or []
    if not isinstance(listed, list) or len(listed) > MAX_LAYERS or any(type(i) is not int for i in listed):
        raise CheckpointError(f"{config.where}: mlp_only_layers is not a list of layers")
    sparse = [i not in listed and (i + 1) % every == 0 for i in range(layers)]
    return [mixture if mixed else dense for mixed in sparse]
