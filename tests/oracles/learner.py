"""A learner by the layers' oracles: forward and VJP in NumPy, optimiser on arrays. What learners must agree with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from tests.oracles.clip import clip_by_norm, global_norm
from tests.oracles.network import NumpyNetwork, TrainingPass
from volumetric.base._typing import Array
from volumetric.dtypes import Scheme, decode, encode
from volumetric.graph.numeric.counter_noise import noise_key
from volumetric.network import INPUT, Network, check_params
from volumetric.network.weight_store import Params, WeightStore
from volumetric.observe import Observer, Watch
from volumetric.run import Plan, lower
from volumetric.run.plan import with_outputs
from volumetric.train.data import Batch
from volumetric.train.learner import LearnerOptions, LearnerState, StepReport
from volumetric.train.losses import LossTerms
from volumetric.train.output_losses import OutputTargets, Tally, Terms
from volumetric.train.precision import schemes_of, trained_store
from volumetric.train.prepared_batch import naming_output
from volumetric.train.trainable import (
    check_state,
    first_masters,
    kept_store,
    learned_buffers,
    trained_keys,
)
from volumetric.train.whole_batches import BatchForm, check_statistics, statistics_layer


class NumpyLearner:
    """Trains with NumPy in float32, or float64 for checks.

    Samples that are rows go through the network together. Samples that are sequences go one by one and their gradients
    are summed: rows of a call see each other in layers such as attention, and no mask between sequences is needed.
    """

    def __init__(
        self,
        network: Network,
        params: Params,
        options: LearnerOptions,
        dtype: type[np.float32] | type[np.float64] = np.float32,
    ) -> None:
        check_params(network, params)
        self._options = options
        self._schemes = schemes_of(network, params, options.dtype)
        self._losses = options.losses
        self._losses.check(network)
        plan = with_outputs(lower(network), self._losses.of)
        self._executable, self._dtype = NumpyNetwork(plan, {}, dtype), dtype
        self._overlay = options.overlay
        self._watch: Watch | None = None
        self._wanted = trained_keys(plan, params, options)
        masters = first_masters(params, self._wanted, options)
        self._masters: dict[str, Array] = {key: w.astype(dtype) for key, w in masters.items()}
        self._kept = {
            key: kept_store(store, options, self._schemes[key], trained=key in self._wanted)
            for key, store in params.items()
        }
        learned = learned_buffers(plan, params, options)
        self._buffers: dict[str, Array] = {key: self._kept[key].values().astype(dtype) for key in learned}
        kept = plan.params.keys() - self._buffers.keys() - set(() if self._overlay is not None else self._wanted)
        self._fixed = {k: self._kept[k].values().astype(dtype, copy=False) for k in kept}
        self._slots = {
            name: {k: np.zeros_like(w) for k, w in self._masters.items()} for name in options.optimiser.slots
        }
        self._updates = 0
        self._install(self._masters)

    @property
    def state(self) -> LearnerState:
        """What the next update depends on. Updates make new arrays, so these stay as they are."""
        slots = {n: dict(of) for n, of in self._slots.items()}
        return LearnerState(self._updates, dict(self._masters), slots, dict(self._buffers))

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` where its arrays are not those of this network."""
        check_state(state, self.state, self._options)
        self._masters, self._buffers = dict(state.masters), dict(state.buffers)
        self._slots = {name: dict(arrays) for name, arrays in state.slots.items()}
        self._updates = state.updates
        self._install(self._masters)

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update. Numbers that are not finite are found and named, so NumPy need not warn of them."""
        with np.errstate(all="ignore"):
            return self._step(batches, rate)

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch."""
        return self.measure(batch)[0]

    def measure(self, batch: Batch) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch, and the outputs that it has targets of."""
        tally, found = Tally(), list[dict[str, Array]]()
        asked = self._losses.targets_of(batch)
        executable = self._part(asked)
        with np.errstate(all="ignore"):
            for x, wanted in self._runs(batch, asked):
                values, _ = executable.trace(x)
                tally += self._tally(executable.plan, values, self._terms(values, wanted))
                found.append({name: values[self._plan.outputs[name]] for name in asked})
        if not BatchForm(self._plan).checked(batch.inputs_by_name)[1]:
            return tally, found[0]
        return tally, {name: np.stack([of[name] for of in found]) for name in asked}

    def params(self) -> Params:
        """Return the weights as they are now; what is neither trained nor converted is the given store itself."""
        if self._overlay is not None:
            return self._overlay.merge(self._kept, self._masters)
        trained = {key: trained_store(w, self._schemes[key]) for key, w in self._masters.items()}
        trained |= {key: WeightStore.from_array(np.array(b, np.float32)) for key, b in self._buffers.items()}
        return Params({key: trained.get(key, store) for key, store in self._kept.items()})

    def watch(self, observers: Sequence[Observer]) -> None:
        """Tell `observers` about every layer, forward and backward, from the next update on."""
        self._watch = Watch(observers) if observers else None

    @property
    def _plan(self) -> Plan:
        return self._executable.plan

    def _part(self, outputs: Collection[str]) -> NumpyNetwork:
        """Return what computes some outputs, and nothing else."""
        whole = self._executable
        if len(outputs) == len(self._losses.of):
            return whole
        return NumpyNetwork(with_outputs(whole.plan, outputs), whole.weights, self._dtype)

    def _install(self, masters: dict[str, Array]) -> None:
        """Give the forward pass the weights as their schemes hold them, or with the overlays added."""
        if self._overlay is not None:
            merged = {key: self._fixed[key] + self._overlay.delta(key, masters) for key in self._wanted}
            self._executable.weights = self._fixed | self._buffers | merged
            return
        stored = {key: as_stored(w, self._schemes[key]) for key, w in masters.items()}
        self._executable.weights = stored | self._buffers | self._fixed

    def _step(self, batches: Sequence[Batch], rate: float) -> StepReport:
        weights, watch = self._executable.weights, self._watch
        asked = [self._losses.targets_of(batch) for batch in batches]
        scale, shares = self._losses.shares(self._counts(batches, asked))
        needed = with_outputs(self._plan, shares).params
        tally = Tally()
        gradients = {key: np.zeros_like(weights[key]) for key in self._wanted if key in needed}
        if watch is not None:
            watch.drop()  # of an update that failed
        buffers = dict(self._buffers)
        for part, (batch, what) in enumerate(zip(batches, asked, strict=True)):
            executable = self._part(what)
            sequences = BatchForm(executable.plan).checked(batch.inputs_by_name)[1]
            check_statistics(statistics_layer(executable.plan, self._buffers), sequences=sequences)
            noise, first = noise_key(self._options.seed, self._updates, part), 0
            for x, wanted in self._runs(batch, what):
                training = TrainingPass(buffers=buffers, noise=noise, first=first)
                first += len(x[INPUT])
                values, tape = executable.trace(x, training=training)
                terms = self._terms(values, wanted)
                tally += self._tally(executable.plan, values, terms)
                if tally.fault is not None:
                    return StepReport(tally=tally, gradient_norm=np.nan, fault=tally.fault)
                if watch is not None:
                    watch.forward(executable.plan, values)
                told = None if watch is None else watch.backward
                slopes = {name: of.gradient * of.gradient.dtype.type(shares[name]) for name, of in terms.items()}
                for key, g in executable.vjp(values, tape, slopes, told)[1].items():
                    if key in gradients:
                        gradients[key] += g
        if watch is not None:
            watch.flush(self._updates + 1)
        gradients = {key: g * scale for key, g in gradients.items()}
        if self._overlay is not None:
            gradients = self._overlay.pull(gradients, self._masters)
        return self._update(gradients, buffers, tally, rate)

    def _counts(self, batches: Sequence[Batch], asked: Sequence[Mapping[str, OutputTargets]]) -> dict[str, float]:
        """Output → number of the terms of its loss in all batches."""
        found: dict[str, float] = {}
        for batch, what in zip(batches, asked, strict=True):
            plan = self._plan
            given, many = BatchForm(plan).checked(batch.inputs_by_name)
            lead = given[INPUT].shape[: 2 if many else 1]
            for name, of in what.items():
                shape = (*lead, *plan.values[plan.outputs[name]].shape[1:])
                with naming_output(self._losses, name):
                    count = self._losses.of[name].checked(shape, of.target, of.mask).count
                found[name] = found.get(name, 0.0) + count
        return found

    def _update(self, gradients: dict[str, Array], buffers: dict[str, Array], tally: Tally, rate: float) -> StepReport:
        clip = self._options.clip
        norm = global_norm(gradients)
        if not np.isfinite(norm):
            odd = first_odd_gradient(self._plan, gradients)
            return StepReport(tally=tally, gradient_norm=norm, fault=odd or "the norm of the gradients")
        clipped = clip is not None and norm > clip
        if clip is not None:
            gradients = clip_by_norm(gradients, norm, clip)
        masters: dict[str, Array] = {}
        slots: dict[str, dict[str, Array]] = {name: {} for name in self._slots}
        for key, w in self._masters.items():
            if key not in gradients:  # no output that was asked for needs it
                masters[key] = w
                for name, arrays in slots.items():
                    arrays[key] = self._slots[name][key]
                continue
            before = {name: arrays[key] for name, arrays in self._slots.items()}
            optimiser = self._options.optimiser.for_weight(w.ndim, decay_vectors=self._options.decay_vectors)
            masters[key], after = optimiser.update(w, gradients[key], before, step=self._updates + 1, rate=rate)
            if not np.isfinite(masters[key]).all():
                return StepReport(tally=tally, gradient_norm=norm, fault=f"parameter {key} after the update")
            for name, array in after.items():
                slots[name][key] = array
        odd = next((key for key, value in buffers.items() if not np.isfinite(value).all()), None)
        if odd is not None:
            return StepReport(tally=tally, gradient_norm=norm, fault=f"buffer {odd} after the update")
        self._masters, self._slots, self._updates, self._buffers = masters, slots, self._updates + 1, buffers
        self._install(masters)
        return StepReport(tally=tally, gradient_norm=norm, clipped=clipped)

    def _terms(self, values: dict[int, Array], asked: Mapping[str, OutputTargets]) -> dict[str, LossTerms]:
        found: dict[str, LossTerms] = {}
        for name, of in asked.items():
            with naming_output(self._losses, name):
                found[name] = self._losses.of[name].terms(values[self._plan.outputs[name]], of.target, of.mask)
        return found

    def _tally(self, plan: Plan, values: dict[int, Array], terms: Mapping[str, LossTerms]) -> Tally:
        tally = Tally({name: Terms(of.total, of.count) for name, of in terms.items()})
        if np.isfinite(tally.total):
            return tally
        odd = first_odd_value(plan, self._executable.weights, values)
        return Tally(tally.terms, odd or self._losses.fault({name: of.total for name, of in terms.items()}))

    def _runs(
        self, batch: Batch, asked: Mapping[str, OutputTargets]
    ) -> Iterator[tuple[dict[str, Array], Mapping[str, OutputTargets]]]:
        """Yield the inputs of each forward pass, and what is asked of its outputs."""
        given, many = BatchForm(self._plan).checked(batch.inputs_by_name)
        if not many:
            yield given, asked
            return
        for i in range(len(batch)):
            part = {name: OutputTargets(t[i], None if mask is None else mask[i]) for name, (t, mask) in asked.items()}
            yield {name: x[i] for name, x in given.items()}, part


def first_odd_value(plan: Plan, weights: Mapping[str, Array], values: Mapping[int, Array]) -> str | None:
    """Name the first value of a forward pass that is not finite: the input, a parameter, or a layer's output."""
    for name, i in plan.inputs.items():
        if _odd(values[i]):
            return "the input of the network" if name == INPUT else f"the input {name} of the network"
    for step in plan.steps:
        for key in step.params.values():
            if _odd(weights[key]):
                return f"parameter {key}"
        if any(_odd(values[i]) for i in step.outputs):
            return f"the output of {step.op} at {step.where}"
    return None


def first_odd_gradient(plan: Plan, gradients: Mapping[str, Array]) -> str | None:
    """Name the first gradient in the order of the backward pass that is not finite."""
    for step in reversed(plan.steps):
        for key in step.params.values():
            if key in gradients and _odd(gradients[key]):
                return f"the gradient of {key} ({step.op} at {step.where})"
    return None


def _odd(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all())


def as_stored(master: Array, scheme: Scheme) -> Array:
    """Return the values that `scheme` makes of `master`, in the dtype of `master`.

    float32 and float64 leave a master as it is, also one of float64, which only serves to check gradients.
    """
    if scheme.dtype.is_float and scheme.dtype.bits >= 32:
        return master
    return decode(encode(master, scheme), master.dtype)
