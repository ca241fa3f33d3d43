"""Graphs that locate the first non-finite value: in a pass, in its gradients, or in an update."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.network import INPUT
from volumetric.run.graph.training_graphs import (
    ForwardPass,
    begin_training,
    emit_loss,
    master_gradients,
    next_key,
    seeds_of,
    sum_key,
)
from volumetric.run.graph.weight_reader import EmitWeights
from volumetric.run.graph.weight_updates import KNOBS, UpdateRule, trial_update
from volumetric.run.plan import Plan


@dataclass(frozen=True, slots=True)
class LabelledGraph:
    """A graph with readable labels of its outputs, in the order in which they are searched.

    Attributes
    ----------
    labels : labels of the first outputs
    outputs : output of the network → its index among these
    gradients, buffers : keys of the outputs after these: gradients, and the buffers after the pass
    """

    graph: Graph
    labels: tuple[str, ...]
    outputs: Mapping[str, int] = field(default_factory=dict)
    gradients: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()


def pass_values(of: ForwardPass, weights: EmitWeights, rule: UpdateRule | None) -> LabelledGraph:
    """Return a pass whose outputs are its inputs, the weights that it reads, and the output of each step.

    Parameters
    ----------
    rule : run layers in training mode and output gradients, too; None: inference mode

    Notes
    -----
    Inputs: the key of the pass, if it trains and `draws`; those of `loss_graph`; with a rule the shares if it is
    `shared`.
    """
    work = GraphBuilder(parted=of.parted)
    training = None if rule is None else begin_training(work, of, rule)
    forward = emit_loss(work, of, weights, training)
    own, plan = weights(work), of.plan
    shown: dict[str, int] = {}
    for name, i in plan.inputs.items():
        shown["the input of the network" if name == INPUT else f"the input {name} of the network"] = forward.values[i]
    for step in plan.steps:
        shown |= {f"parameter {key}": own(key, plan.params[key]) for key in step.params.values()}
        shown |= {f"the output of {step.op} at {step.where}": forward.values[i] for i in step.outputs}
    shown = {label: i for label, i in shown.items() if work.tensors[i].dtype == "float32"}
    places = {i: at for at, i in enumerate(shown.values())}
    ends = {name: places[forward.values[i]] for name, i in plan.outputs.items() if forward.values[i] in places}
    if rule is None or training is None:
        return LabelledGraph(work.finish([*shown.values()]), tuple(shown), ends)
    gradients = master_gradients(work, rule, seeds_of(work, of, forward, training))
    outputs = [*shown.values(), *gradients.values(), *training.buffers.values()]
    return LabelledGraph(work.finish(outputs), tuple(shown), ends, tuple(gradients), tuple(training.buffers))


def update_values(plan: Plan, rule: UpdateRule) -> LabelledGraph:
    """Return an update by the sums of gradients that writes nothing and outputs these, their norm and the new values.

    Input: the knobs.
    """
    work = GraphBuilder()
    gradients = {key: work.stored_tensor(sum_key(key), shape) for key, shape in rule.masters.items()}
    norm, new = trial_update(work, rule, gradients, work.input("knobs", (KNOBS,)))
    shown = {label: gradients[key] for label, key in _gradients(plan, rule)}
    shown["the norm of the gradients"] = norm
    shown |= {f"parameter {key} after the update": i for key, i in new.items()}
    for key, shape in rule.buffers.items():
        shown[f"buffer {key} after the update"] = work.stored_tensor(next_key(key), shape)
    return LabelledGraph(work.finish([*shown.values()]), tuple(shown))


def _gradients(plan: Plan, rule: UpdateRule) -> Iterator[tuple[str, str]]:
    """Yield label and key of each gradient in the order of the backward pass; first those of a single step."""
    left = dict.fromkeys(rule.masters)
    for step in reversed(plan.steps):
        for key in step.params.values():
            if key in left:
                del left[key]
                yield f"the gradient of {key} ({step.op} at {step.where})", key
    yield from ((f"the gradient of {key}", key) for key in left)
