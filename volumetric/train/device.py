"""The learner on any device: an update is one graph, and all arrays stay where it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.graph import Graph, GraphBuilder, GraphDevice, GraphProgram, NumpyGraphs
from volumetric.graph.device import HasGraphs
from volumetric.graph.interpret import Float
from volumetric.graph.numeric.noise import noise_key
from volumetric.graph.programs import ProgramCache
from volumetric.graph.stacks import Stacks
from volumetric.network import INPUT, Network, check_params
from volumetric.observe.events import ACTIVE_ABOVE, Observer, Stats, Watch
from volumetric.runtime import lower
from volumetric.runtime.graph.training import (
    ForwardPass,
    UpdateRule,
    Watched,
    gradient_graph,
    loss_graph,
    next_key,
    slot_key,
    step_graph,
    sum_key,
    update_graph,
    watch_graph,
)
from volumetric.runtime.plan import Plan, with_outputs
from volumetric.train.by_output import Tally
from volumetric.train.data import Batch
from volumetric.train.faults import FaultFinder
from volumetric.train.forward_weights import ForwardWeights, stacked_weights
from volumetric.train.learner import LearnerOptions, LearnerState, OpenLearner, StepReport
from volumetric.train.lora import DOWN, UP
from volumetric.train.modes import Systolic, TargetPropagation
from volumetric.train.objective import naming, pose
from volumetric.train.precision import schemes_of, trained_store
from volumetric.train.ready import Ready, sharing
from volumetric.train.subject import (
    BatchForm,
    check_state,
    first_masters,
    kept_store,
    learned_buffers,
    trained_keys,
)
from volumetric.weights import Params, WeightStore


def learner_on(device: HasGraphs) -> OpenLearner:
    """Return what `train` takes as its `learner`: updates run on `device`.

    Examples
    --------
    >>> train(network, params, data, learner=learner_on(open_device("gpu")))  # doctest: +SKIP
    """

    def open_learner(network: Network, params: Params, options: LearnerOptions) -> DeviceLearner:
        Chosen: type[DeviceLearner] = DeviceLearner
        if isinstance(options.mode, TargetPropagation) and options.clocked is not None:
            from volumetric.train.online import OnlineLearner as Chosen
        elif isinstance(options.mode, TargetPropagation):
            from volumetric.train.targets import TargetLearner as Chosen
        elif isinstance(options.mode, Systolic):
            from volumetric.train.clocked import ClockedLearner as Chosen
        elif options.mode.carry:
            from volumetric.train.carried import CarryLearner as Chosen
        return Chosen(network, params, options, device.graphs())

    return open_learner


class DeviceLearner:
    """Trains on a `GraphDevice`. Masters, slots and sums of gradients are float32 buffers of its store.

    An update by one batch is one run of one graph. Sequences of a batch are computed side by side, as if each were
    alone. What is not finite is looked for once more on the host, which names the layer.

    Parameters
    ----------
    device : where graphs run

    Raises
    ------
    UnsupportedError
        The device cannot hold a scheme, as 64-bit types on most GPUs.
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        check_params(network, params)
        self._network, self._given, self._options, self._device = network, params, options, device
        self._float: Float = device.dtype if isinstance(device, NumpyGraphs) else np.float32
        self._losses = options.losses
        self._losses.check(network)
        self._plan = self._lowered(network)
        self._schemes = schemes_of(network, params, options.dtype)
        self._wanted = trained_keys(self._plan, params, options)
        extra = self._extra_masters()
        self._extra = frozenset(extra)
        masters = {**first_masters(params, self._wanted, options), **extra}
        self._shapes = {key: w.shape for key, w in masters.items()}
        self._kept = {
            key: kept_store(store, options, self._schemes[key], trained=key in self._wanted)
            for key, store in params.items()
        }
        self._buffers = {k: params[k].shape for k in learned_buffers(self._plan, params, options)}
        self._forms: dict[int, BatchForm] = {}
        self._rules: dict[frozenset[str], UpdateRule] = {}
        self._parts: dict[frozenset[str], Plan] = {}
        self._store = device.store()
        self._stacks = self._stacked()
        self._updates = 0
        self._programs = ProgramCache()
        self._watch: Watch | None = None
        self._watched: dict[tuple[object, ...], tuple[Watched, ...]] = {}
        self._stacks.put(self._store, masters, lambda key: np.asarray(masters[key], self._float))
        for key, shape in self._stacks.shapes(self._shapes).items():
            for slot in options.optimiser.slots:
                self._store.put(slot_key(slot, key), np.zeros(shape, np.float32))
        fixed = [key for key in self._plan.params if key not in self._shapes]
        self._stacks.put(self._store, fixed, lambda key: self._kept[key].values())

    @property
    def state(self) -> LearnerState:
        """What the next update depends on, copied from the device."""
        slots = {
            slot: self._stacks.get(self._store, self._shapes, partial(slot_key, slot))
            for slot in self._options.optimiser.slots
        }
        return LearnerState(self._updates, self._masters(), slots, self._learned())

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` where its arrays are not those of this network."""
        check_state(state, self.state, self._options)
        self._stacks.put(self._store, state.masters, state.masters.__getitem__)
        for slot, arrays in state.slots.items():
            self._stacks.put(self._store, arrays, arrays.__getitem__, partial(slot_key, slot))
        for key, array in state.buffers.items():
            self._store.put(key, array)
        self._updates = state.updates

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update from the gradients of all `batches` together; a fault leaves every weight as it was."""
        for batch in batches:
            self._form_of(self._plan).check_statistics(self._inputs(batch))
        ready, scale = sharing(self._losses, [self._ready(batch) for batch in batches])
        self._observe(ready)
        knobs = self._knobs(rate, scale, self._updates + 1)
        if len(ready) == 1:
            tally, norm, good = self._run_one(ready[0], knobs)
        else:
            rule = self._rule({name for one in ready for name in one.posed.counts})
            tally = self._sum(ready, rule)
            finite = np.isfinite(tally.total)
            norm, good = self._values(self._updating(rule), [knobs]) if finite else (0.0, 0.0)
        return self._conclude(batches, tally, norm, good=bool(good), rate=rate)

    def _conclude(self, batches: Sequence[Batch], tally: Tally, norm: float, *, good: bool, rate: float) -> StepReport:
        """Count an update that was written; of one that was not, find what was not finite."""
        if not good:
            if self._watch is not None:
                self._watch.drop()
            fault = self._fault(batches, rate, tally)
            norm = norm if np.isfinite(tally.total) else np.nan
            return StepReport(tally=dataclasses.replace(tally, fault=fault), gradient_norm=norm, fault=fault)
        self._updates += 1
        if self._watch is not None:
            self._watch.flush(self._updates)
        clip = self._options.clip
        return StepReport(tally=tally, gradient_norm=norm, clipped=clip is not None and norm > clip)

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch."""
        ready = self._ready(batch)
        program = self._program(("loss", ready.of), lambda: loss_graph(ready.of, self._weights))
        return self._tally(batch, ready, program.run(ready.arrays)[0])

    def measure(self, batch: Batch) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch, and the outputs that it has targets of."""
        ready = self._ready(batch)
        program = self._program(("measure", ready.of), lambda: loss_graph(ready.of, self._weights, outputs=True))
        totals, *outputs = program.run(ready.arrays)
        return self._tally(batch, ready, totals), dict(zip(ready.posed.counts, outputs, strict=True))

    def _tally(self, batch: Batch, ready: Ready, found: Array) -> Tally:
        tally = ready.posed.tally(found.tolist())
        if np.isfinite(tally.total):
            return tally
        return dataclasses.replace(tally, fault=self._pass_fault(ready, tally))

    def watch(self, observers: Sequence[Observer]) -> None:
        """Tell `observers` about every layer, forward and backward, from the next update on.

        Statistics are taken on the device, by one more run for each batch.
        """
        self._watch = Watch(observers) if observers else None

    def params(self) -> Params:
        """Return the weights as they are now; what is neither trained nor converted is the given store itself."""
        masters = self._masters()
        if self._options.overlay is not None:
            return self._options.overlay.merge(self._kept, masters)
        trained = {key: trained_store(w, self._schemes[key]) for key, w in masters.items() if key in self._schemes}
        trained |= {key: WeightStore.from_array(value) for key, value in self._learned().items()}
        return Params({key: trained.get(key, store) for key, store in self._kept.items()})

    def _learned(self) -> dict[str, Array]:
        return {key: self._store.get(key) for key in self._buffers}

    def _masters(self) -> dict[str, Array]:
        return self._stacks.get(self._store, self._shapes)

    def _stacked(self) -> Stacks:
        """Return which parameters lie in the store as one: those that a launch can read and write together."""
        if not self._device.parted or self._options.overlay is not None:
            return Stacks()
        return stacked_weights(self._plan, self._shapes, self._schemes)

    def _extra_masters(self) -> dict[str, Array]:
        """Return what is trained beside the network, as it is at first."""
        return {}

    def _lowered(self, network: Network) -> Plan:
        """Return what is computed: that which no loss needs is not."""
        return with_outputs(lower(network), self._losses.of)

    def _rule(self, outputs: Collection[str]) -> UpdateRule:
        """Return how arrays change in an update by the losses of some outputs: what these do not need stays."""
        names = frozenset(outputs)
        if names not in self._rules:
            self._rules[names] = self._make_rule(self._part(names))
        return self._rules[names]

    def _make_rule(self, plan: Plan) -> UpdateRule:
        needed = {*plan.params, *self._extra, *self._factors(plan.params)}
        shapes = self._stacks.shapes({key: shape for key, shape in self._shapes.items() if key in needed})
        optimiser = self._options.optimiser
        updates: dict[str, Mapping[str, Any]] = {}
        for key, shape in shapes.items():
            axes = len(shape) - (key in self._stacks.named)
            updates[key] = optimiser.for_weight(axes, decay_vectors=self._options.decay_vectors).attributes
        clip = self._options.clip
        buffers = {key: shape for key, shape in self._buffers.items() if key in plan.params}
        return UpdateRule(masters=shapes, updates=updates, slots=optimiser.slots, clip=clip, buffers=buffers)

    def _factors(self, keys: Collection[str]) -> list[str]:
        """Keys of the overlays on some weights."""
        return [] if self._options.overlay is None else [key + end for key in keys for end in (DOWN, UP)]

    def _part(self, outputs: Collection[str]) -> Plan:
        """Return what some outputs need of the network."""
        names = frozenset(outputs)
        return self._parts.get(names) or self._parts.setdefault(names, with_outputs(self._plan, names))

    def _form_of(self, part: Plan) -> BatchForm:
        """Return what batches of a part of the network are; parts stay as long as the learner."""
        return self._forms.get(id(part)) or self._forms.setdefault(id(part), BatchForm(part, self._buffers))

    def _weights(self, work: GraphBuilder) -> ForwardWeights:
        """Return what gives the forward pass its weights."""
        return ForwardWeights(
            work=work,
            stacks=self._stacks,
            schemes=self._schemes,
            shapes=self._shapes,
            overlay=self._options.overlay,
            overlaid=self._wanted,
        )

    def _inputs(self, batch: Batch) -> Mapping[str, Array]:
        """Return what a batch has for the inputs of the network."""
        return batch.given

    def _ready(self, batch: Batch) -> Ready:
        """Check a batch and bring it into the form of graphs."""
        asked = self._losses.asked(batch)
        plan = self._part(asked)
        given, many = self._form_of(plan).checked(self._inputs(batch))
        lead = given[INPUT].shape[: 2 if many else 1]
        shapes = {name: (*lead, *plan.values[plan.outputs[name]].shape[1:]) for name in asked}
        posed = pose(self._losses, asked, shapes)
        of = ForwardPass(
            plan=plan,
            inputs=tuple((name, x.shape) for name, x in given.items()),
            sequences=lead[0] if many else None,
            objectives=posed.objectives,
            parted=self._device.parted,
        )
        return Ready(of, [*given.values(), *posed.arrays], posed)

    def _knobs(self, rate: float, scale: float, step: int) -> Array:
        """Return the numbers that update number `step` takes from the host."""
        with np.errstate(over="ignore"):
            return np.array([rate, scale, *self._options.optimiser.knobs(step)], np.float64).astype(self._float)

    def _noise(self, of: ForwardPass, part: int) -> list[Array]:
        """Return the key of a pass by batch number `part` of the next update, if it draws random numbers."""
        return [self._key(self._updates, part)] if of.draws else []

    def _key(self, update: int, part: int) -> Array:
        """Return the key of one pass of an update as graphs take it."""
        return np.array(noise_key(self._options.seed, update, part), np.uint32).view(np.int32)

    def _run_one(self, ready: Ready, knobs: Array) -> tuple[Tally, float, float]:
        rule = self._rule(ready.posed.counts)
        program = self._program(("step", ready.of), lambda: step_graph(ready.of, self._weights, rule))
        *totals, norm, good = self._values(program, [*self._noise(ready.of, 0), *ready.arrays, knobs])
        return ready.posed.tally(totals), norm, good

    def _observe(self, ready: Sequence[Ready]) -> None:
        """Collect the statistics of a pass over all batches, under the weights before the update."""
        if self._watch is None:
            return
        makes = {step.outputs[0]: step for step in self._plan.steps}
        for part, (of, arrays) in enumerate((one.of, one.arrays) for one in ready):
            program = self._program(("watch", of), lambda of=of: self._watch_graph(of))
            numbers = program.run([*self._noise(of, part), *arrays])
            if numbers:
                for entry, (low, high, mean, active) in zip(
                    self._watched[of.key], numbers[0].reshape(-1, 4).tolist(), strict=True
                ):
                    stats = Stats(min=low, max=high, mean=mean, active=active, total=entry.size)
                    self._watch.add(entry.mode, makes[entry.value], stats)

    def _watch_graph(self, of: ForwardPass) -> Graph:
        rule = self._rule([objective.name for objective in of.objectives])
        graph, self._watched[of.key] = watch_graph(of, self._weights, rule, ACTIVE_ABOVE)
        return graph

    def _sum(self, ready: Sequence[Ready], rule: UpdateRule) -> Tally:
        """Sum the gradients of several batches; return the sums of their loss terms, up to the first that is odd."""
        tally = Tally()
        self._start_sums()
        for i, one in enumerate(ready):
            of = one.of
            program = self._program(("sum", of, tuple(rule.masters)), partial(gradient_graph, of, self._weights, rule))
            keep = np.array([float(i > 0)], np.float32)
            tally += one.posed.tally(self._values(program, [keep, *self._noise(of, i), *one.arrays]))
            if not np.isfinite(tally.total):
                break
        return tally

    def _start_sums(self) -> None:
        """Create the buffers of sums and of what layers change meanwhile, which only accumulation needs."""
        known = set(self._store.keys())
        names = {sum_key(key): shape for key, shape in self._stacks.shapes(self._shapes).items()}
        names |= {next_key(key): shape for key, shape in self._buffers.items()}
        for name, shape in names.items():
            if name not in known:
                self._store.put(name, np.zeros(shape, np.float32))

    def _updating(self, rule: UpdateRule) -> GraphProgram:
        return self._program(("update", tuple(rule.masters)), lambda: update_graph(rule))

    def _program(self, name: tuple[object, ...], make: Callable[[], Graph]) -> GraphProgram:
        """Compile a graph once for each shape of batch."""
        key = tuple(part.key if isinstance(part, ForwardPass) else part for part in name)
        return self._programs.get(key, lambda: self._device.compile(make(), self._store))

    @staticmethod
    def _values(program: GraphProgram, arrays: Sequence[Array]) -> list[float]:
        return program.run(arrays)[0].tolist()

    def _loss_fault(self, tally: Tally) -> str:
        return self._losses.fault({name: of.total for name, of in tally.terms.items()})

    def _pass_fault(self, ready: Ready, tally: Tally) -> str:
        """Name what is not finite first in a pass at inference."""
        finder = FaultFinder(self._device, self._store, self._weights)
        found = finder.in_pass(ready)
        if found is None:
            self._check_outputs(finder.outputs)
        return found or self._loss_fault(tally)

    def _check_outputs(self, outputs: Mapping[str, Array]) -> None:
        """Raise `ShapeError` if outputs are none that their losses are defined for."""
        for name, y in outputs.items():
            if name in self._losses.of:
                with naming(self._losses, name):
                    self._losses.of[name].check_output(y)

    def _fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name what was not finite first in an update."""
        ready, scale = sharing(self._losses, [self._ready(batch) for batch in batches])
        finder = FaultFinder(self._device, self._store, self._weights)
        plan, names = self._plan, {name for one in ready for name in one.posed.counts}
        passes = [(one, self._noise(one.of, part)) for part, one in enumerate(ready)]
        knobs, odd = self._knobs(rate, scale, self._updates + 1), not np.isfinite(tally.total)
        found = finder.in_update(plan, passes, self._rule(names), knobs, judged=not odd)
        if found is None and odd:
            self._check_outputs(finder.outputs)
        return found or (self._loss_fault(tally) if odd else "the norm of the gradients, or a new weight")
