"""Whole networks as graphs, from the layer-level plan: links, residual wires and shared weights are resolved there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from volumetric._typing import Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.layers import LayerSpec, MultiHeadAttention
from volumetric.layers.recurrent import Recurrent
from volumetric.network import Network
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.ops import Graph
from volumetric.runtime.graph.passes import fuse_activations
from volumetric.runtime.graph.rules import GraphTraining, Scope
from volumetric.runtime.graph.rules.containers import joined
from volumetric.runtime.lower import lower
from volumetric.runtime.plan import Plan, Step


def graph_of(network: Network, rows: int, *, sequences: int | None = None, remember: bool = False) -> Graph:
    """Return the forward pass of `network` as a graph with one input and one output.

    Parameters
    ----------
    rows : rows (tokens, samples) of a call
    sequences : None: the input is ``[rows, …]``, one sequence where rows see each other. A number: the input is
        ``[sequences, rows, …]``, and so is the output; each sequence is computed as if it were alone
    remember : recurrent layers go on from the buffers ``state/<layer>/h`` (and ``c``), ``[sequences, hidden_size]``,
        which the store must hold (zeros at the start of a sequence), and leave their state there. Layers whose rows
        count on from earlier calls in another way are refused

    Returns
    -------
    Graph
        Its persistent buffers are the network's parameters by their keys, and the states.

    Raises
    ------
    SpecError
        `remember`, and a layer remembers more than a state of fixed size.
    """
    plan = lower(network)
    if remember:
        _check_states(plan)
    work = GraphBuilder()
    value = plan.values[plan.inputs[0]]
    lead = (rows,) if sequences is None else (sequences, rows)
    x = work.input("input", (*lead, *value.shape[1:]), value.dtype)
    y = emit_plan(work, plan, x, sequences=sequences, remember=remember)
    return fuse_activations(work.finish([y]))


def emit_plan(
    work: GraphBuilder,
    plan: Plan,
    x: int,
    *,
    param: Callable[[str, Shape], int] | None = None,
    sequences: int | None = None,
    remember: bool = False,
    made: dict[int, int] | None = None,
    training: GraphTraining | None = None,
) -> int:
    """Emit a layer-level plan (of `lower`) on the input tensor `x` and return its output.

    Parameters
    ----------
    x : ``[rows, …]``, or ``[sequences, rows, …]`` where `sequences` is a number
    param : key and shape of a parameter → the tensor to use for it, by default the persistent buffer of that key
    made : receives value of the plan → tensor
    training : None at inference
    """
    value = plan.values[plan.inputs[0]]
    lead = 1 if sequences is None else 2
    shape = work.shape(x)
    if (
        len(shape) != lead + len(value.shape) - 1
        or shape[lead:] != value.shape[1:]
        or shape[0] != (sequences or shape[0])
    ):
        raise ShapeError(f"the plan's input has rows of shape {list(value.shape[1:])}, got {list(shape)}")
    count = 1 if sequences is None else sequences
    rows = shape[0] if sequences is None else sequences * shape[1]
    values = {plan.inputs[0]: work.reshape(x, (rows, *shape[lead:]))}
    base = Scope(work=work, param=param or work.stored, path="", sequences=count, remember=remember, training=training)
    for step in plan.steps:
        values[step.outputs[0]] = emit_step(base, step, [values[i] for i in step.inputs])
    if made is not None:
        made.update(values)
    y = values[plan.outputs[0]]
    return work.reshape(y, (*shape[:lead], *work.shape(y)[1:]))


def emit_step(base: Scope, step: Step, inputs: Sequence[int]) -> int:
    """Emit one step of a layer-level plan and return its output; `base` finds parameters by their keys."""
    work, spec = base.work, step.attrs.get("spec")
    if isinstance(spec, LayerSpec):
        keys = step.params
        scope = replace(
            base, path=step.where, param=lambda path, shape: base.param(keys[path], shape), key=keys.__getitem__
        )
        return scope.emit(spec, *inputs)
    with work.at(step.where):
        total = joined(work, inputs, step.op)
        return total if step.op == "concat" else work.affine(total, step.attrs["scale"])


def _check_states(plan: Plan) -> None:
    for step in plan.steps:
        spec: LayerSpec | None = step.attrs.get("spec")
        if spec is not None and _counts_on(spec) and len(plan.values[step.inputs[0]].shape) <= 2:
            raise SpecError(
                f"{step.op} at {step.where} remembers rows, not a state of fixed size",
                hint="give whole sequences, or use a device's compile for plans",
            )


def _counts_on(spec: LayerSpec) -> bool:
    """Whether a layer remembers anything but a state of fixed size."""
    if spec.children_field is not None:
        return any(map(_counts_on, getattr(spec, spec.children_field)))
    bidirectional = isinstance(spec, MultiHeadAttention) and not spec.causal
    return spec.remembers and not bidirectional and not isinstance(spec, Recurrent)
