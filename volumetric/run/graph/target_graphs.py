"""Target propagation as a graph: every layer gets a target for its output, and learns from that target only.

For layers i = 1 … L with outputs h_i a target ĥ_i is computed from the top down, and the weights of a layer descend its
error ``E_i = ‖f_i(h_{i-1}) - ĥ_i‖² / (2 B κ_i)``, whose gradient stays within the layer. Two methods compute targets:

- ``"gradient"``: ``ĥ_i = h_i - κ_i ∂ℓ/∂h_i``, with ``κ_i = s ρ^(L-i)``. The gradient of E_i is then that of the loss.
- ``"difference"``: ``ĥ_{i-1} = h_{i-1} + ρ (g_i(ĥ_i) - g_i(h_i))`` with an inverse g_i of each layer, so that no
  derivative crosses a layer below the last ones. Learned inverses descend ``R_i = ‖g_i(f_i(h̃)) - h̃‖² / (2B)``, where
  h̃ is h_{i-1} with noise. Lee et al. 2015, "Difference Target Propagation" (arXiv 1412.7525).

ℓ is the loss of one row, the sum of those of its outputs; B is the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.objectives import emit_seeds
from volumetric.graph.ops import Graph
from volumetric.layers import Discrete
from volumetric.layers.discrete import discrete_value
from volumetric.layers.emit_scope import GraphTraining, Scope
from volumetric.run.graph.inverses import EXACT, cross_join, emit_inverse, last_steps, weighted_values
from volumetric.run.graph.network_graph import EmitOptions, emit_plan, emit_step
from volumetric.run.graph.target_rule import TargetRule, budget_of, draw_noise, gap_of, pace_of
from volumetric.run.graph.training_graphs import ForwardPass, emit_inputs, emit_loss
from volumetric.run.graph.weight_reader import EmitWeights, GetWeight
from volumetric.run.graph.weight_updates import KNOBS, UpdatePace
from volumetric.run.plan import Plan, Step


def taught_steps(plan: Plan, trained: Iterable[str]) -> list[Step]:
    """Return the steps that report statistics: those with trained weights, in order."""
    keys = set(trained)
    return [step for step in plan.steps if keys.intersection(step.params.values())]


def target_graph(of: ForwardPass, weights: EmitWeights, rule: TargetRule) -> Graph:
    """Return the graph of a complete update by one batch.

    Inputs: the key of the pass, int32 [2], if layers draw or inverses learn; as `loss_graph`; the shares if it
    is `shared`; the noise on what inverses learn from [1], if they do; the knobs. Output [n + 2 + 2 m]: the sums of the
    terms of n losses, norm of all gradients, 1 if it was written, and budget and gap of each of m steps of
    `taught_steps`.
    """
    work = GraphBuilder(flush=True)
    learned = [inverse for inverse in rule.inverses.values() if inverse.layer is not None]
    drawing = of.draws or (rule.learns_inverses and learned)
    key = work.input("noise", (2,), "int32") if drawing else None
    buffers = {name: work.stored_tensor(name, shape) for name, shape in rule.update.buffers.items()}
    training = GraphTraining(buffers=buffers, noise=key if of.draws else None)
    get = weights(work)
    forward = emit_loss(work, of, lambda _: get, training)
    tensors = forward.values
    seeds = emit_seeds(work, forward.slopes, shared=of.shared)
    noise = work.input("spread", (1,)) if rule.learns_inverses and learned else None
    knobs = work.input("knobs", (KNOBS,))
    scale = work.split(knobs, [1] * KNOBS, 0)[1]
    pass_ = _TargetPass(work=work, plan=of.plan, rule=rule, tensors=tensors, get=get, sequences=of.sequences or 1)
    slopes: dict[int, int] = {}
    for objective, (output, _) in zip(of.objectives, forward.slopes, strict=True):
        if output not in seeds:  # an alias of the same tensor
            continue
        y = tensors[of.plan.outputs[objective.name]]
        slope = work.reshape(seeds.pop(output), work.shape(y))
        slope = work.affine(
            work.binary("mul", slope, work.reshape(scale, (1,) * len(work.shape(y)))), float(pass_.rows)
        )
        slopes[y] = work.add(slopes[y], slope) if y in slopes else slope
    pass_.set_targets(slopes)
    steps = taught_steps(of.plan, rule.update.masters)
    gradients, paces, facts = pass_.local_gradients(steps)
    inverses = pass_.inverse_gradients(key, noise) if noise is not None and key is not None else {}
    update = rule.write(work, knobs, inverses, forward.totals, gradients, paces, training.buffers)
    return work.finish([work.concat([forward.totals, *update, *facts], 0)])


def inverse_graph(of: ForwardPass, weights: EmitWeights, rule: TargetRule) -> Graph:
    """Return the graph of an update of the inverses only.

    Inputs: key, inputs, noise and knobs, as of `target_graph`. Output [2]: norm of the gradients, 1 if it was written.
    """
    work = GraphBuilder(flush=True)
    key = work.input("noise", (2,), "int32")
    inputs = emit_inputs(work, of)
    get = weights(work)
    tensors = emit_plan(work, of.plan, inputs, EmitOptions(param=get, sequences=of.sequences)).values
    noise, knobs = work.input("spread", (1,)), work.input("knobs", (KNOBS,))
    pass_ = _TargetPass(work=work, plan=of.plan, rule=rule, tensors=tensors, get=get, sequences=of.sequences or 1)
    facts = rule.write(work, knobs, pass_.inverse_gradients(key, noise))
    return work.finish([work.concat(facts, 0)])


@dataclass(kw_only=True)
class _TargetPass:
    """One forward pass, and the targets of its values."""

    work: GraphBuilder
    plan: Plan
    rule: TargetRule
    tensors: Mapping[int, int]
    get: GetWeight
    sequences: int

    def __post_init__(self) -> None:
        """Start without targets."""
        self.shift: dict[int, int] = {}
        """Value → shift from it to its target."""
        self.kappa: dict[int, float] = {}
        self.rows = self.work.shape(self.tensors[next(iter(self.plan.outputs.values()))])[0]

    @cached_property
    def base(self) -> Scope:
        """The scope in which layers are emitted again, and their inverses."""
        return Scope(work=self.work, param=self.get, path="", sequences=self.sequences)

    @cached_property
    def readers(self) -> dict[int, list[Step]]:
        """Value → the steps that read it."""
        readers: dict[int, list[Step]] = {}
        for step in self.plan.steps:
            for i in dict.fromkeys(step.inputs):
                readers.setdefault(i, []).append(step)
        return readers

    @cached_property
    def target_values(self) -> set[int]:
        """Values that can have a target."""
        return weighted_values(self.plan)

    @cached_property
    def maker(self) -> dict[int, Step]:
        """Value → the step that computes it."""
        return {step.outputs[0]: step for step in self.plan.steps}

    def set_targets(self, slopes: Mapping[int, int]) -> None:
        """Set the targets of all values; `slopes`: output → gradient of each row's loss with respect to it."""
        if self.rule.course.method == "gradient":
            self._by_gradient(slopes)
        else:
            self._by_difference(slopes)

    def _by_gradient(self, slopes: Mapping[int, int]) -> None:
        depth = self._depths()
        gradients = differentiate(self.work, slopes, [self.tensors[i] for i in depth])
        for value, layers in depth.items():
            if self.tensors[value] in gradients:
                kappa = self.rule.course.scale * self.rule.course.growth**layers
                self._set_shift(value, [(self.work.affine(gradients[self.tensors[value]], -kappa), kappa)])

    def _depths(self) -> dict[int, int]:
        """Return output of a layer → number of layers from it to an output of the network, on the longest path."""
        depths = dict.fromkeys(self.plan.outputs.values(), 0)
        for step in reversed(self.plan.steps):
            if step.outputs[0] in depths:
                further = depths[step.outputs[0]] + bool(step.params)
                for i in step.inputs:
                    depths[i] = max(depths.get(i, 0), further)
        return {value: layers for value, layers in depths.items() if value in self.target_values}

    def _by_difference(self, slopes: Mapping[int, int]) -> None:
        derived, last = last_steps(self.plan)
        ends = {i for step in last for i in step.outputs} | set(self.plan.outputs.values())
        if self.rule.course.top == "hidden":
            derived = [*derived, *last]
            ends |= {i for step in last for i in step.inputs if i in self.target_values}
        free = {id(step) for step in derived}
        blocked = {self.tensors[i] for i, step in self.maker.items() if id(step) not in free}
        shifts: dict[int, list[tuple[int, float]]] = {}
        for value in ends:
            tensor, stops = self.tensors[value], blocked - {self.tensors[value]}
            gradients = differentiate(self.work, slopes, [tensor], stops=stops)
            if tensor in gradients:
                shifts[value] = [(self.work.affine(gradients[tensor], -self.rule.course.scale), self.rule.course.scale)]
        for step in reversed(self.plan.steps):
            value = step.outputs[0]
            if value in shifts:
                self._set_shift(value, shifts[value])
                if id(step) not in free:
                    for i, shift in self._cross(step):
                        shifts.setdefault(i, []).append(shift)

    def _set_shift(self, value: int, shifts: Sequence[tuple[int, float]]) -> None:
        """Set the shift of a value to the mean of the requested shifts, within the bound."""
        work, many = self.work, len(shifts)
        shift = work.affine(work.add(*(shift for shift, _ in shifts)), 1 / many)
        self.shift[value] = self.rule.bound(work, shift)
        self.kappa[value] = sum(kappa for _, kappa in shifts) / many

    def _cross(self, step: Step) -> list[tuple[int, tuple[int, float]]]:
        """Return the shifts that a step requests of its inputs, given the target of its output."""
        work, value = self.work, step.outputs[0]
        shift, kappa = self.shift[value], self.kappa[value]
        inputs = [i for i in step.inputs if i in self.target_values]
        spec = step.attrs.get("spec")
        if not inputs:
            return []
        if spec is None:
            shares = cross_join(work, step, tuple(self.tensors[i] for i in step.inputs), shift)
            return [
                (i, (share, kappa)) for i, share in zip(step.inputs, shares, strict=True) if i in self.target_values
            ]
        x, y = self.tensors[inputs[0]], self.tensors[value]
        if step.where in self.rule.inverses:
            inverse = self.rule.inverses[step.where]
            there, here = (
                emit_inverse(self.base, inverse, step, self._after_discrete(value, z)) for z in (work.add(y, shift), y)
            )
            shift = work.binary("sub", there, here)
        elif not spec.inert:
            shift = EXACT[step.op](self.base, step, x, y, shift)
        growth = self.rule.course.growth if step.params else 1.0
        return [(inputs[0], (work.affine(shift, growth), kappa * growth))]

    def _discrete(self, value: int) -> Step | None:
        """Return the discrete layer that is the only reader of a value, or None."""
        readers = self.readers.get(value, [])
        specs = {step.attrs.get("spec") for step in readers}
        alone = len(specs) == 1 and isinstance(next(iter(specs)), Discrete)
        return readers[0] if alone and value not in self.plan.outputs else None

    def _after_discrete(self, value: int, tensor: int) -> int:
        """Return a value as the layers above read it."""
        step = self._discrete(value)
        return tensor if step is None else discrete_value(self.work, step.attrs["spec"], tensor)

    def local_gradients(self, steps: Sequence[Step]) -> tuple[dict[str, int], dict[str, UpdatePace], list[int]]:
        """Emit gradients and paces of the weights of layers, and budget and gap of each layer."""
        work, rule = self.work, self.rule
        gradients: dict[str, int] = {}
        budgets: dict[str, list[int]] = {}
        facts: list[int] = []
        for step in steps:
            value = step.outputs[0]
            masters = {key: rule.update.masters[key] for key in step.params.values() if key in rule.update.masters}
            if value not in self.shift:  # no trained array depends on it
                facts += [work.scalar(0.5), work.scalar(0.0)]
                continue
            h, shift = self.tensors[value], self.shift[value]
            seed = work.affine(shift, -1 / (self.rows * self.kappa[value]))
            stored = {key: work.stored_tensor(key, shape) for key, shape in masters.items()}
            stops = {self.tensors[i] for i in step.inputs} - {h}
            slopes = differentiate(work, {h: seed}, stored.values(), stops=stops)
            whole, far = (work.reshape(z, (1, *work.shape(z))) for z in (h, shift))
            budget = budget_of(work, whole, work.add(whole, far))
            facts += [budget, gap_of(work, far)]
            for key, tensor in stored.items():
                if tensor in slopes:
                    before = gradients.get(key)
                    gradients[key] = slopes[tensor] if before is None else work.add(before, slopes[tensor])
                    budgets.setdefault(key, []).append(budget)
        paces = {key: pace_of(work, terms, rule.course.gate) for key, terms in budgets.items()}
        return gradients, paces, facts

    def inverse_gradients(self, key: int, noise: int) -> dict[str, int]:
        """Emit the gradients of the inverses: they learn to reconstruct the input of a layer near its value."""
        work, gradients = self.work, dict[str, int]()
        for step in self.plan.steps:
            inverse = self.rule.inverses.get(step.where)
            if inverse is None or inverse.layer is None:
                continue
            value, through = self._before_discrete(step.inputs[0])
            x = self.tensors[value]
            moved = work.add(x, draw_noise(work, work.shape(x), step.where, key, noise))
            y = moved
            for layer in reversed(through):
                y = discrete_value(work, layer.attrs["spec"], y)
            y = self._after_discrete(step.outputs[0], emit_step(self.base, step, [y]))
            back = emit_inverse(self.base, inverse, step, y)
            parts = {name: work.stored_tensor(name, shape) for name, shape in inverse.shapes().items()}
            seed = work.affine(work.binary("sub", back, moved), 1 / self.rows)
            stops = {y}
            slopes = differentiate(work, {back: seed}, parts.values(), stops=stops)
            gradients |= {name: slopes[i] for name, i in parts.items() if i in slopes}
        return gradients

    def _before_discrete(self, value: int) -> tuple[int, list[Step]]:
        """Return the value before the discrete layers through which a step reads it, and these layers, last first."""
        through: list[Step] = []
        while value in self.maker and self.maker[value].op == "discrete":
            through.append(self.maker[value])
            value = through[-1].inputs[0]
        return value, through
