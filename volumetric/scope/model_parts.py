"""The parts of a model as one reads it: an embedding, blocks, a head; and the steps of its plan in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from volumetric.base._typing import Shape
from volumetric.layers import LayerSpec, MultiHeadAttention, Parallel
from volumetric.network import INPUT
from volumetric.network.grid import Coord
from volumetric.run.plan import Plan, Step

FAMILIES: Final = ("embedding", "attention", "mlp", "experts", "recurrent", "norm", "head", "sum", "other")
"""What layers are for, in the order of their colours."""
_KINDS: Final[Mapping[str, str]] = {
    "embedding": "embedding", "position_embedding": "embedding", "multi_head_attention": "attention",
    "xl_attention": "attention", "agalite": "attention", "swiglu": "mlp", "mlp": "mlp", "dense": "mlp",
    "rms_norm": "norm", "layer_norm": "norm", "group_norm": "norm", "add": "sum", "concat": "sum",
    "mamba": "recurrent", "mamba2": "recurrent", "short_conv": "recurrent", "rnn": "recurrent", "lstm": "recurrent",
    "gru": "recurrent", "slstm": "recurrent", "mlstm": "recurrent", "axon": "recurrent", "fabric": "recurrent",
}  # fmt: skip
_WORDS: Final[Mapping[str, str]] = {
    "rms_norm": "RMSNorm", "layer_norm": "LayerNorm", "swiglu": "MLP, gated", "mlp": "MLP", "dense": "projection",
    "add": "sum", "gate": "router",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBlock:
    """The layers of one cell of the grid: a block of a transformer, its embedding, or its head.

    Attributes
    ----------
    label : ``"embedding"``, ``"block 3"``, ``"head"``; of other networks the coordinate, ``"2.0.1"``
    steps : in the order in which they run
    """

    label: str
    steps: tuple[Step, ...]


def model_blocks(plan: Plan) -> tuple[ModelBlock, ...]:
    """Return the blocks of a plan in the order of their first steps.

    The head of a model is all that follows the last cell which mixes tokens or adds to a stream.
    """
    cells: dict[tuple[int, int, int], list[Step]] = {}
    for step in plan.steps:
        coord = Coord.parse(step.where.partition("/")[0])
        cells.setdefault((coord.z, coord.y, coord.x), []).append(step)
    groups = list(cells.values())
    labels = [".".join(map(str, cell)) for cell in cells]
    reads_ids = plan.values[plan.inputs[INPUT]].dtype == "int32"
    body = next((k for k in range(len(groups), 0, -1) if not _row_by_row(groups[k - 1])), 0)
    if reads_ids and body > 1 and all(cell[1:] == (0, 0) for cell in cells):
        head = [step for group in groups[body:] for step in group]
        groups = groups[:body] + [head] * bool(head)
        labels = ["embedding", *(f"block {i}" for i in range(body - 1)), "head"][: len(groups)]
    return tuple(ModelBlock(label=label, steps=tuple(steps)) for label, steps in zip(labels, groups, strict=True))


def is_tower(blocks: Sequence[ModelBlock]) -> bool:
    """Return whether blocks are those of a model of tokens: an embedding, and blocks above it."""
    return blocks[0].label == "embedding"


def _row_by_row(steps: Sequence[Step]) -> bool:
    """Return whether steps are norms, projections and functions of single rows, one behind the other."""
    return not any(
        step.op in ("add", "embedding") or getattr(step.attrs.get("spec"), "contextual", False) for step in steps
    )


def family_of(step: Step, block: ModelBlock) -> str:
    """Return which of `FAMILIES` a step belongs to."""
    spec = step.attrs.get("spec")
    if isinstance(spec, Parallel):
        return "experts" if spec.gate is not None else "other"
    family = _KINDS.get(step.op, "other")
    return "head" if block.label == "head" and family in ("mlp", "other") else family


def describe_step(step: Step) -> str:
    """Return what a layer is, in words: ``"attention, 9 heads (3 KV), window 512"``."""
    spec = step.attrs.get("spec")
    if isinstance(spec, MultiHeadAttention):
        shared = f" ({spec.kv_heads} KV)" if spec.kv_heads < spec.num_heads else ""
        parts = [f"attention, {spec.num_heads} heads{shared}"]
        parts += [f"window {spec.window}"] * (spec.window is not None) + [f"chunk {spec.chunk}"] * bool(spec.chunk)
        parts += ["soft cap"] * (spec.softcap is not None) + ["sinks"] * spec.sinks + ["both ways"] * spec.two_way
        return ", ".join(parts + ["no RoPE"] * (spec.rope is None))
    if isinstance(spec, Parallel) and spec.gate is not None:
        top = spec.gate.top_k
        return f"{len(spec.branches)} experts" + (f", {top} for each token" if top else "")
    return describe_kind(spec.kind if isinstance(spec, LayerSpec) else step.op)


def describe_kind(kind: str) -> str:
    """Return the kind of a layer, or an operation of a plan, in words."""
    return _WORDS.get(kind, kind.replace("_", " "))


def show_sizes(shape: Shape) -> str:
    """Return a shape as text."""
    return "×".join(map(str, shape)) or "1"
