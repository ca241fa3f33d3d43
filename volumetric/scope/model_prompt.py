"""What a model does with a prompt: the residual stream behind each block, what heads read, and its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import UnsupportedError
from volumetric.generate.load_model import context_for
from volumetric.generate.model import Model
from volumetric.generate.prompt import check_ids
from volumetric.layers import MultiHeadAttention
from volumetric.loaders import LoadedModel
from volumetric.network import INPUT, OUTPUT
from volumetric.run.lower import lower
from volumetric.run.plan import Plan
from volumetric.scope.model_parts import ModelBlock, model_blocks
from volumetric.scope.model_steps import run_steps

MAX_TOKENS: Final = 128
"""Most tokens of a prompt that are shown: matrices grow with their square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerAttention:
    """What the heads of one layer read.

    Attributes
    ----------
    where : coordinate
    block : label of the block
    weights : ``[heads, T, T]``, see `StepResult`
    """

    where: str
    block: str
    spec: MultiHeadAttention
    weights: F32Array


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTrace:
    """A prompt's way through a model.

    Attributes
    ----------
    ids : the tokens that were run
    left_out : tokens of the prompt behind them that were not
    streams : label of each block → its last output ``[T, width]``, for all blocks before the head
    attention : layers of attention in order
    unread : coordinates of layers that mix tokens in another way than by a matrix of weights
    output : ``[T, …]``, logits of a language model
    """

    loaded: LoadedModel
    plan: Plan
    ids: tuple[int, ...]
    left_out: int
    streams: dict[str, F32Array]
    attention: tuple[LayerAttention, ...]
    unread: tuple[str, ...]
    output: F32Array


def trace_prompt(model: LoadedModel | Model, ids: Sequence[int], *, most: int = MAX_TOKENS) -> PromptTrace:
    """Run a prompt on the reference, layer by layer; only one layer's weights are in memory as float32.

    Parameters
    ----------
    most : tokens after which the prompt is cut

    Raises
    ------
    GenerationError : there are no tokens, or one is not of the vocabulary
    UnsupportedError : the model does not read tokens
    """
    loaded = model.loaded if isinstance(model, Model) else model
    if loaded.network.input_dtype != "int32":
        raise UnsupportedError(
            f"{loaded.name} reads numbers, not tokens", hint="a prompt needs a language model or an encoder"
        )
    context = model.executable.options.context if isinstance(model, Model) else context_for(None, loaded)
    plan = lower(loaded.network, context)
    rows = check_ids(ids, plan)
    shown = rows[:most]
    streams: dict[str, F32Array] = {}
    attention: list[LayerAttention] = []
    unread: list[str] = []
    output = np.zeros(0, np.float32)
    blocks = model_blocks(plan)
    block_of = {step.where: block.label for block in blocks for step in block.steps}
    body = {block.steps[-1].outputs[0]: block.label for block in blocks if block.label != "head"}
    for result in run_steps(plan, lambda key: loaded.params[key].values(), {INPUT: shown}):
        step, spec = result.step, result.step.attrs.get("spec")
        if result.attention is not None and isinstance(spec, MultiHeadAttention):
            weights = result.attention
            attention.append(LayerAttention(where=step.where, block=block_of[step.where], spec=spec, weights=weights))
        elif getattr(spec, "contextual", False) and step.op != "position_embedding":
            unread.append(step.where)
        for value in step.outputs:
            if value in body:
                streams[body[value]] = result.output
            if value == plan.outputs[OUTPUT]:
                output = result.output
    return PromptTrace(
        loaded=loaded,
        plan=plan,
        ids=tuple(map(int, shown)),
        left_out=len(rows) - len(shown),
        streams=streams,
        attention=tuple(attention),
        unread=tuple(unread),
        output=output,
    )


def head_plan(plan: Plan) -> tuple[Plan, ModelBlock] | None:
    """Return the plan from the last block's output to the logits, and that block; None if they are not logits.

    It has the last norm, the output projection, soft cap and factors: whatever the model does behind its last block.
    """
    blocks = model_blocks(plan)
    table = next((step.attrs["spec"] for step in plan.steps if step.op == "embedding"), None)
    outputs = plan.values[plan.outputs[OUTPUT]].shape
    if blocks[-1].label != "head" or table is None or outputs[1:] != (table.num_embeddings,):
        return None
    steps, stream = blocks[-1].steps, blocks[-2].steps[-1].outputs[0]
    inner = {i for step in steps for i in step.outputs}
    if {i for step in steps for i in step.inputs} - inner != {stream}:
        return None
    alone = replace(
        plan,
        steps=steps,
        inputs=MappingProxyType({INPUT: stream}),
        outputs=MappingProxyType({OUTPUT: plan.outputs[OUTPUT]}),
    )
    return alone, blocks[-2]


def through_head(head: Plan, stream: Array, weights: dict[str, F32Array], loaded: LoadedModel) -> F32Array:
    """Return the logits for rows of the residual stream; `weights` holds the head's weights from call to call."""

    def read(key: str) -> F32Array:
        if key not in weights:
            weights[key] = loaded.params[key].values()
        return weights[key]

    *_, last = run_steps(head, read, {INPUT: stream})
    return last.output
