"""Training as graphs: forward, loss, backward and the update, without synchronising with the host.

Weights, slots and sums of gradients are persistent buffers; inputs are a batch, outputs a few numbers. The update is
that of `volumetric.run.graph.weight_updates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from volumetric.base._typing import Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.objectives import ForwardLosses, Objective, emit_objectives, emit_seeds, emit_targets
from volumetric.graph.ops import Graph
from volumetric.layers.emit_scope import GraphTraining
from volumetric.run.graph.loss_scale import LossScale
from volumetric.run.graph.network_graph import EmitOptions, emit_plan, resumed_states
from volumetric.run.graph.weight_reader import EmitWeights
from volumetric.run.graph.weight_updates import KNOBS, UpdateRule, write_update
from volumetric.run.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """One pass through a network: the shapes of a batch.

    Attributes
    ----------
    plan : plan of the network, of `lower`, without steps that no loss needs
    inputs : name and shape of each input, ``[rows, …]`` or ``[sequences, rows, …]``
    sequences : number of sequences, or None if rows are samples
    objectives : the losses
    shared : whether the losses have shares in the gradient, see `emit_seeds`
    carried : sequences continue from the pass before: their states are in buffers below this name, see `carried_key`,
        as constants, and there is one more input after the others, float32 ``[sequences, rows]``: 1 for a row that
        starts a new sequence
    at_first : sequences start only at the first row or not at all: that input is ``[sequences, 1]``
    parted : see `GraphDevice.parted`
    draws : whether training draws random numbers and needs the key of a pass
    """

    plan: Plan
    inputs: tuple[tuple[str, Shape], ...]
    sequences: int | None
    objectives: tuple[Objective, ...]
    shared: bool = False
    carried: str | None = None
    at_first: bool = False
    parted: bool = False
    draws: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies it among passes through the same network."""
        streams = self.carried, self.at_first
        return self.inputs, self.sequences, self.shared, streams, tuple(of.key for of in self.objectives)


@dataclass(frozen=True, slots=True)
class WatchedValue:
    """The subject of four numbers of a `watch_graph`: a value of the plan or its gradient, and its size."""

    value: int
    mode: Literal["forward", "backward"]
    size: int


def sum_key(key: str) -> str:
    """Return the name of the buffer in which gradients of several batches are summed."""
    return f"sum/{key}"


def next_key(key: str) -> str:
    """Return the name of the buffer with a layer's buffer after several batches, until their update."""
    return f"next/{key}"


def carried_key(name: str, key: str) -> str:
    """Return the name of the buffer ``[sequences, …]`` of a state that streams carry from pass to pass."""
    return f"{name}/{key}"


def loss_graph(of: ForwardPass, weights: EmitWeights, *, outputs: bool = False) -> Graph:
    """Return the graph of the losses of a batch.

    Inputs: inputs [, resets], then for each of n losses targets [, weights]. Outputs: the totals of the losses [n], and
    with `outputs` each output that has a loss.
    """
    work = GraphBuilder(flush=True, parted=of.parted)
    forward = emit_loss(work, of, weights)
    _write_stream_states(work, forward)
    return work.finish([forward.totals, *(y for y, _ in forward.slopes)] if outputs else [forward.totals])


def predict_graph(of: ForwardPass, weights: EmitWeights) -> Graph:
    """Return the graph of the outputs that have losses, with the weights as they are trained.

    Inputs: those of the network. Outputs: in the order of the losses.
    """
    work = GraphBuilder(flush=True, parted=of.parted)
    inputs, own = emit_inputs(work, of), weights(work)
    options = EmitOptions(param=own, stack=own.stack, sequences=of.sequences)
    outputs = emit_plan(work, of.plan, inputs, options).outputs
    return work.finish([outputs[objective.name] for objective in of.objectives])


def gradient_graph(of: ForwardPass, weights: EmitWeights, rule: UpdateRule) -> Graph:
    """Return the graph that adds the gradients of a batch to their sums.

    Inputs: ``keep`` [1]: 0 resets the sums; the key of the pass if it `draws`; those of `loss_graph`; the shares, see
    `emit_seeds`; if gradients are scaled, the factor on them [1]. Output: the totals of the losses [n].
    """
    work = GraphBuilder(flush=True, parted=of.parted)
    keep = work.input("keep", (1,))
    new = work.affine(keep, -1.0, 1.0)
    training = GraphTraining(
        buffers={
            key: work.add(
                _select_if(work, work.stored_tensor(next_key(key), shape), keep),
                _select_if(work, work.stored_tensor(key, shape), new),
            )
            for key, shape in rule.buffers.items()
        },
        noise=_noise(work, of),
    )
    forward = emit_loss(work, of, weights, training)
    seeds = seeds_of(work, of, forward, training)
    if rule.scaled:
        seeds = LossScale.of(work).scale(seeds, work.input("scale", (1,)))
    for key, g in master_gradients(work, rule, seeds).items():
        work.assign(
            sum_key(key), work.add(_select_if(work, work.stored_tensor(sum_key(key), rule.masters[key]), keep), g)
        )
    for key, value in training.buffers.items():
        work.assign(next_key(key), value)
    _write_stream_states(work, forward)
    return work.finish([forward.totals])


def update_graph(rule: UpdateRule) -> Graph:
    """Return the graph of an update by summed gradients. Input: the knobs. Output [2]: see `write_update`."""
    work = GraphBuilder(flush=True)
    gradients = {key: work.stored_tensor(sum_key(key), shape) for key, shape in rule.masters.items()}
    buffers = {key: work.stored_tensor(next_key(key), shape) for key, shape in rule.buffers.items()}
    knobs = work.input("knobs", (KNOBS,))
    loss_scale = LossScale.of(work) if rule.scaled else None
    facts = write_update(work, rule, gradients, buffers, knobs, None, loss_scale=loss_scale)
    return work.finish([work.concat(facts, 0)])


def step_graph(of: ForwardPass, weights: EmitWeights, rule: UpdateRule) -> Graph:
    """Do all of an update by one batch.

    Inputs: the key of the pass if it `draws`; as `loss_graph`; the shares if it is `shared`; the knobs; the output of
    the update before. If its last number is 0, this update writes nothing, so several can be submitted together.
    Output [n + 2]: the sums of the losses' terms, then as `update_graph`.
    """
    work = GraphBuilder(flush=True, parted=of.parted)
    training = begin_training(work, of, rule)
    forward = emit_loss(work, of, weights, training)
    seeds = seeds_of(work, of, forward, training)
    knobs, n = work.input("knobs", (KNOBS,)), len(of.objectives)
    written = work.split(work.input("before", (n + 2,)), [n + 1, 1], 0)[1]
    loss_scale = LossScale.of(work) if rule.scaled else None
    if loss_scale is not None:
        seeds = loss_scale.scale(seeds, work.split(knobs, [1] * KNOBS, 0)[1])
    gradients, buffers = master_gradients(work, rule, seeds), training.buffers
    facts = write_update(work, rule, gradients, buffers, knobs, forward.totals, written=written, loss_scale=loss_scale)
    _write_stream_states(work, forward, facts[1])
    return work.finish([work.concat([forward.totals, *facts], 0)])  # one tensor: a device copies each output separately


def watch_graph(
    of: ForwardPass, weights: EmitWeights, rule: UpdateRule, active: float
) -> tuple[Graph, tuple[WatchedValue, ...]]:
    """Return the graph of statistics of the output of every step, and of the gradients of the total loss by it.

    Inputs: the key of the pass if it `draws`; those of `loss_graph`; the shares if it is `shared`. Output ``[4 · n]``:
    minimum, maximum, mean, and the fraction above `active` in magnitude, for each of the n returned entries.
    """
    work = GraphBuilder(flush=True, parted=of.parted)
    training = begin_training(work, of, rule)
    forward = emit_loss(work, of, weights, training)
    tensors = forward.values
    ends = [step.outputs[0] for step in of.plan.steps if 0 not in work.shape(tensors[step.outputs[0]])]
    slopes = differentiate(work, seeds_of(work, of, forward, training), [tensors[end] for end in ends])
    entries = [WatchedValue(end, "forward", prod(work.shape(tensors[end]))) for end in ends]
    entries += [
        WatchedValue(end, "backward", prod(work.shape(tensors[end])))
        for end in reversed(ends)
        if tensors[end] in slopes
    ]
    watched = [tensors[e.value] if e.mode == "forward" else slopes[tensors[e.value]] for e in entries]
    statistics = [number for x in watched for number in _statistics(work, x, active)]
    return work.finish([work.concat(statistics, 0)] if statistics else []), tuple(entries)


def _statistics(work: GraphBuilder, x: int, active: float) -> list[int]:
    flat = work.reshape(x, (prod(work.shape(x)),))
    least = work.unary(work.reduce(work.unary(flat, "neg"), "max", (0,)), "neg")
    above = work.binary("greater", work.unary(flat, "abs"), work.scalar(active))
    return [least, work.reduce(flat, "max", (0,)), work.reduce(flat, "mean", (0,)), work.reduce(above, "mean", (0,))]


def begin_training(work: GraphBuilder, of: ForwardPass, rule: UpdateRule) -> GraphTraining:
    """Return the training data of a graph, with the current values of the buffers."""
    buffers = {key: work.stored_tensor(key, shape) for key, shape in rule.buffers.items()}
    return GraphTraining(buffers=buffers, noise=_noise(work, of))


def _noise(work: GraphBuilder, of: ForwardPass) -> int | None:
    return work.input("noise", (2,), "int32") if of.draws else None


def emit_loss(
    work: GraphBuilder, of: ForwardPass, weights: EmitWeights, training: GraphTraining | None = None
) -> ForwardLosses:
    """Emit the forward pass and the losses."""
    inputs, name = emit_inputs(work, of), of.carried
    resets: int | None = None
    states: dict[str, int] = {}
    if name is not None:
        batch, rows = of.inputs[0][1][:2]
        resets = work.input("resets", (batch, 1 if of.at_first else rows))
        for key, state in resumed_states(of.plan).items():
            shape = (of.sequences or 1, *state.shape)
            states[key] = work.stored_tensor(carried_key(name, key), shape, role="state")
        if of.at_first:  # resets before the first row need no checks in other rows
            keep = work.affine(resets, -1.0, 1.0)
            for key, state in states.items():
                own = work.reshape(keep, (batch, *(1 for _ in work.shape(state)[1:])))
                states[key] = work.binary("mul_nonzero", state, own)
            resets = None
    before, own = dict(states), weights(work)
    targets = [emit_targets(work, objective) for objective in of.objectives]
    options = EmitOptions(
        param=own,
        stack=own.stack,
        sequences=of.sequences,
        training=training,
        resumes=name is not None,
        resets=resets,
        states=states,
    )
    emitted = emit_plan(work, of.plan, inputs, options)
    left = {carried_key(name or "", key): value for key, value in states.items() if value != before[key]}
    return replace(
        emit_objectives(work, of.objectives, emitted.outputs, targets), values=emitted.values, stream_states=left
    )


def _write_stream_states(work: GraphBuilder, forward: ForwardLosses, good: int | None = None) -> None:
    """Write the states of streams, unless the one element of `good` is 0."""
    for key, value in forward.stream_states.items():
        work.assign(key, value, good)


def seeds_of(work: GraphBuilder, of: ForwardPass, forward: ForwardLosses, training: GraphTraining) -> dict[int, int]:
    """Emit the seeds of differentiation: the gradients of the losses, and of the penalties of layers."""
    return emit_seeds(work, forward.slopes, shared=of.shared) | {i: work.scalar(1.0) for i in training.penalties}


def emit_inputs(work: GraphBuilder, of: ForwardPass) -> dict[str, int]:
    """Add the inputs of a pass, by name."""
    plan = of.plan
    return {name: work.input(name, shape, plan.values[plan.inputs[name]].dtype) for name, shape in of.inputs}


def master_gradients(work: GraphBuilder, rule: UpdateRule, seeds: Mapping[int, int]) -> dict[str, int]:
    """Emit the gradients of the masters, zeros for masters that no loss depends on."""
    masters = {key: work.stored_tensor(key, shape) for key, shape in rule.masters.items()}
    gradients = differentiate(work, seeds, masters.values())
    return {key: gradients[i] if i in gradients else work.zeros(rule.masters[key]) for key, i in masters.items()}


def _select_if(work: GraphBuilder, x: int, condition: int) -> int:
    """Emit `x` if the one element `condition` is 1, zeros (even for NaN) if it is 0."""
    return work.binary("mul_nonzero", x, work.reshape(condition, (1,) * len(work.shape(x))))
