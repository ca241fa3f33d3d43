"""Configuration values that names and shapes of a stack of blocks show, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.detect import spellings
from volumetric.detect.layer_groups import AttentionHeads, child, heads_of, matrix, projections_node
from volumetric.detect.module_tree import ModuleNode
from volumetric.loaders import archs
from volumetric.loaders.tensor_source import TensorEntry, TensorSource


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value, and the evidence for it."""

    value: Any
    reason: str


def known_values(root: ModuleNode, source: TensorSource) -> dict[str, KnownValue]:
    """Return the configuration values that tensors show, with Hugging Face's names."""
    known: dict[str, KnownValue] = {}
    blocks = _block_numbers(source.entries)
    if blocks:
        known["num_hidden_layers"] = KnownValue(len(blocks), "number of numbered blocks")
        _add_mixtures(source.entries, blocks, known)
    _add_embedding_and_head(root, known)
    heads: AttentionHeads | None = None
    for node in root.modules():
        if heads is None:
            heads = heads_of(node)
            if heads is not None:
                _add_heads(heads, known)
                _add_biases(node, known)
                norm = child(projections_node(node), spellings.QUERY_NORM)
                if norm is not None:
                    known["use_qk_norm"] = known["qk_layernorm"] = KnownValue(True, "heads have norms")
        _add_rotary_base(node, source, known)
        if {"input_layernorm", "self_attn", "mlp"} <= node.children.keys() <= {"input_layernorm", "self_attn", "mlp"}:
            known["use_parallel_residual"] = KnownValue(True, "one norm for attention and MLP")
        _add_mlp(node, known)
    for family in archs.families():
        evidence = getattr(archs.family_module(family), "evidence", None)
        facts = {} if evidence is None else evidence(source.entries, {name: one.value for name, one in known.items()})
        known |= {name: KnownValue(value, reason) for name, (value, reason) in facts.items()}
    return known


def _block_numbers(entries: Mapping[str, TensorEntry]) -> set[int]:
    """Numbers of the blocks, if they are 0, 1, 2, … without gaps."""
    matches = (spellings.STACK.match(name) for name in entries)
    numbers = {int(match[1]) for match in matches if match and len(match[1]) < 6}
    return numbers if numbers == set(range(len(numbers))) else set()


def _add_mixtures(entries: Mapping[str, TensorEntry], blocks: set[int], known: dict[str, KnownValue]) -> None:
    """Blocks that have a plain MLP although others have a mixture."""
    mixed = {int(match[1]) for name in entries if (match := _EXPERTS.match(name))}
    if mixed:
        known["moe_layers"] = KnownValue(sorted(mixed), "blocks with experts")
    if mixed and mixed < blocks:
        known["mlp_only_layers"] = KnownValue(sorted(blocks - mixed), "blocks without experts")


_EXPERTS = re.compile(r"(?:model\.)?layers\.(\d{1,5})\.\w+\.experts\.")


def _add_embedding_and_head(root: ModuleNode, known: dict[str, KnownValue]) -> None:
    """Add the values of embeddings and head."""
    vocabulary = None
    head = False
    for node in root.modules():
        shape = node.shape("weight")
        name = node.path.replace("/", ".").rpartition(".")[2]
        if shape is None or len(shape) != 2:
            continue
        if spellings.POSITIONS.search(node.path):
            known.setdefault("max_position_embeddings", KnownValue(shape[0], f"rows of {node.path}"))
        elif "token_type" in name:
            known.setdefault("type_vocab_size", KnownValue(shape[0], f"rows of {node.path}"))
        elif spellings.EMBEDDING.search(node.path) and vocabulary is None:
            vocabulary = shape[0]
            known["vocab_size"] = KnownValue(shape[0], f"rows of {node.path}")
            known["hidden_size"] = KnownValue(shape[1], f"columns of {node.path}")
        elif name in ("lm_head", "embed_out", "output"):
            head = True
        elif node.path in ("classifier", "score", "classifier.out_proj"):
            known["num_labels"] = KnownValue(shape[0], f"rows of {node.path}")
            known["architectures"] = KnownValue(["ForSequenceClassification"], f"there is a {node.path}")
    masked = next((node.path for node in root.modules() if spellings.MASKED_HEAD.fullmatch(node.path)), None)
    if masked is not None and "architectures" not in known:
        known["architectures"] = KnownValue(["ForMaskedLM"], f"there is a {masked}")
    if vocabulary is not None:
        reason = "there is a separate head" if head else "there is no head in addition to the embedding"
        known["tie_word_embeddings"] = KnownValue(not head, reason)


def _add_heads(heads: AttentionHeads, known: dict[str, KnownValue]) -> None:
    known["rows of queries"] = KnownValue(heads.queries, "rows of the projection")
    known["rows of keys"] = KnownValue(heads.keys, "rows of the projection")
    if heads.head_dim is None:
        return
    known["head_dim"] = KnownValue(heads.head_dim, heads.reason)
    known["num_attention_heads"] = KnownValue(heads.queries // heads.head_dim, heads.reason)
    known["num_key_value_heads"] = KnownValue(heads.keys // heads.head_dim, heads.reason)


def _add_biases(node: ModuleNode, known: dict[str, KnownValue]) -> None:
    query = child(projections_node(node), spellings.QUERY)
    if query is not None:
        reason = (
            "the projection of queries has a bias"
            if "bias" in query.tensors
            else "the projection of queries has no bias"
        )
        known["use_qkv_bias"] = known["use_bias"] = KnownValue("bias" in query.tensors, reason)
    query, out = child(projections_node(node), spellings.QUERY), child(node, spellings.OUTPUT)
    if query is not None and out is not None:
        both = "bias" in query.tensors and "bias" in out.tensors
        known["attention_bias"] = KnownValue(
            both, "the projections have biases" if both else "not all projections have biases"
        )


def _add_rotary_base(node: ModuleNode, source: TensorSource, known: dict[str, KnownValue]) -> None:
    """The rotary base, if the file has the frequencies ``base^(-2i/dim)`` without scaling."""
    entry = node.tensors.get("inv_freq")
    if entry is None or "rope_theta" in known or len(entry.shape) != 1 or not 2 <= entry.shape[0] <= 4096:
        return
    turns = source.packed(entry.name).codes().reshape(-1).astype(np.float64)
    source.release(entry.name)
    if not np.isfinite(turns).all() or turns.min() <= 0 or turns[0] != 1:
        return
    count = len(turns)
    base = float(round(turns[-1] ** (-count / (count - 1))))
    if np.allclose(turns, base ** (-np.arange(count) / count), rtol=1e-3):
        known["rope_theta"] = KnownValue(base, "the table of rotary frequencies")
        known["rope_scaling"] = KnownValue(None, "the table of rotary frequencies is not scaled")


def _add_mlp(node: ModuleNode, known: dict[str, KnownValue]) -> None:
    """Add the widths and biases of a plain or shared MLP or of a mixture of experts to `known`."""
    experts, router = child(node, spellings.EXPERTS), matrix(child(node, spellings.ROUTER))
    if experts is not None and router is not None and "num_local_experts" not in known:
        known["num_local_experts"] = KnownValue(router[0], "rows of the router")
        first = experts.children.get("0")
        down = matrix(child(first, spellings.DOWN)) if first is not None else None
        stacked = next((e.shape for n, e in experts.tensors.items() if "down" in n and len(e.shape) == 3), None)
        packed = child(experts, spellings.DOWN)
        if stacked is None and packed is not None and len(packed.shape("weight") or ()) == 3:
            stacked = packed.shape("weight")
        width = down[1] if down is not None else None
        if stacked is not None:  # [count, in, out] or [count, out, in], and out is the hidden size
            hidden = known["hidden_size"].value if "hidden_size" in known else max(stacked[1:])
            width = next((size for size in stacked[1:] if size != hidden), hidden)
        if width is not None:
            known["moe_intermediate_size"] = KnownValue(width, "width of an expert")
            known.setdefault("intermediate_size", KnownValue(width, "width of an expert"))
    down = matrix(child(node, spellings.DOWN))
    up = child(node, (*spellings.UP, *spellings.FUSED_GATE_UP))
    inside = ".experts." in f".{node.path}."
    if down is not None and node.path.endswith(".shared_expert"):
        known["shared_expert_intermediate_size"] = KnownValue(down[1], "width of the shared expert")
        return
    if down is not None and up is not None and not inside and matrix(up) is not None:
        if known.get("intermediate_size") is None or "moe_intermediate_size" in known:
            known["intermediate_size"] = KnownValue(down[1], f"columns of {'/'.join(spellings.DOWN[:1])}")
        known["mlp_bias"] = KnownValue(
            "bias" in up.tensors, "the MLP has biases" if "bias" in up.tensors else "the MLP has no biases"
        )
    dense = matrix(node.children.get("dense"))
    if node.path.rpartition(".")[2] == "intermediate" and dense is not None:
        known.setdefault("intermediate_size", KnownValue(dense[0], f"rows of {node.path}.dense"))
