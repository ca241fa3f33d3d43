"""Training on whole sequences: samples of a batch are computed independently, from the first row to the last."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import LayerSpec
from volumetric.network import INPUT
from volumetric.observe import Observer
from volumetric.run.graph.training_graphs import ForwardPass, loss_graph, step_graph
from volumetric.run.lower import mixing_step
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import check_inputs, check_vocabulary, inputs_by_name
from volumetric.train.arrays import by_input_name
from volumetric.train.data import Batch
from volumetric.train.fault_finder import FaultFinder
from volumetric.train.layer_statistics import LayerStatistics
from volumetric.train.output_losses import Tally
from volumetric.train.picked_batch import AnySamples, PickedBatch
from volumetric.train.prepared_batch import PreparedBatch, naming_output, prepare_objective, share_losses
from volumetric.train.resident_samples import ResidentSamples
from volumetric.train.strategies import TimeStrategy
from volumetric.train.trained_arrays import TrainedArrays


class WholeTime(TimeStrategy):
    """Each update uses whole batches."""

    step_graph = staticmethod(step_graph)
    chained = independent = True

    def __init__(self, arrays: TrainedArrays) -> None:
        self.arrays = arrays
        self._resident = ResidentSamples(self.ready, self._shared)
        self._watching: LayerStatistics | None = None
        self._forms: dict[frozenset[str], BatchForm] = {}
        self._statistics = statistics_layer(arrays.plan, arrays.buffers)

    def ready(self, batch: Batch) -> PreparedBatch[ForwardPass]:
        """Check a batch and convert it to graph form."""
        return self._prepare(batch, by_input_name(batch.inputs))

    def prepare_update(self, batches: Sequence[Batch]) -> tuple[list[PreparedBatch[ForwardPass]], float]:
        ready, scale = share_losses(self.arrays.losses, [self.ready(batch) for batch in batches])
        for one in ready:
            check_statistics(self._statistics, sequences=one.of.sequences is not None)
        self.observe(ready)
        return ready, scale

    def prepare_picked(self, batch: PickedBatch) -> tuple[list[PreparedBatch[ForwardPass]], float]:
        ready = self._resident.prepare(batch)
        return self.prepare_update([batch.batch()]) if ready is None else ([ready[0]], ready[1])

    def _shared(self, one: PreparedBatch[ForwardPass]) -> tuple[PreparedBatch[ForwardPass], float]:
        """Prepare a batch for an update of its own."""
        check_statistics(self._statistics, sequences=one.of.sequences is not None)
        [shared], scale = share_losses(self.arrays.losses, [one])
        return shared, scale

    def watch(self, observers: Sequence[Observer]) -> None:
        self._watching = LayerStatistics(self.arrays, observers) if observers else None

    def observe(self, ready: Sequence[PreparedBatch[ForwardPass]]) -> None:
        """Collect the statistics of an update for observers."""
        if self._watching is not None:
            self._watching.observe(ready)

    def unobserved(self, most: int) -> int:
        return most if self._watching is None else self._watching.unwanted(most)

    def finish_update(self, batches: Sequence[AnySamples]) -> None:
        if self._watching is not None:
            self._watching.tell()

    def judge(self, batch: Batch, *, outputs: bool) -> tuple[Tally, dict[str, Array]]:
        ready, arrays = self.prepare_judged(batch), self.arrays
        program = arrays.program(
            "measure" if outputs else "loss", ready.of, lambda: loss_graph(ready.of, arrays.weights, outputs=outputs)
        )
        totals, *output_arrays = program.run(ready.arrays)
        tally = ready.posed.tally(totals.tolist())
        if not np.isfinite(tally.total):
            tally = dataclasses.replace(tally, fault=self.pass_fault(ready, tally))
        return tally, dict(zip(ready.posed.counts, output_arrays, strict=outputs))

    def prepare_judged(self, batch: Batch) -> PreparedBatch[ForwardPass]:
        """Return a batch for evaluation."""
        return self.ready(batch)

    def _prepare(self, batch: Batch, inputs: Mapping[str, Array]) -> PreparedBatch[ForwardPass]:
        """Check a batch with these `inputs`."""
        losses = self.arrays.losses
        targets = losses.targets_of(batch)
        form = self._forms.get(names := frozenset(targets))
        if form is None:
            form = self._forms[names] = BatchForm(self.arrays.part(names))
        plan = form.plan
        checked, many = form.checked(inputs)
        lead = checked[INPUT].shape[: 2 if many else 1]
        shapes = {name: (*lead, *plan.values[plan.outputs[name]].shape[1:]) for name in targets}
        posed = prepare_objective(losses, targets, shapes)
        of = ForwardPass(
            plan=plan,
            inputs=tuple((name, x.shape) for name, x in checked.items()),
            sequences=lead[0] if many else None,
            objectives=posed.objectives,
            parted=self.arrays.device.parted,
            draws=form.draws,
        )
        return PreparedBatch(of, [*checked.values(), *posed.arrays], posed)

    def pass_fault(self, ready: PreparedBatch[ForwardPass], tally: Tally) -> str:
        """Name the first non-finite value in an inference pass."""
        finder = self._finder()
        fault = finder.in_pass(ready)
        if fault is None:
            self._check_outputs(finder.outputs)
        return fault or self.arrays.fault(tally)

    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str | None:
        arrays, finder = self.arrays, self._finder()
        ready, scale = share_losses(arrays.losses, [self.ready(batch) for batch in batches])
        names = {name for one in ready for name in one.posed.counts}
        passes = [(one, arrays.noise(one.of, part)) for part, one in enumerate(ready)]
        odd = not np.isfinite(tally.total)
        fault = finder.in_update(arrays.plan, passes, arrays.rule(names), arrays.knobs(rate, scale), judged=not odd)
        if fault is None and odd:
            self._check_outputs(finder.outputs)
        return fault

    def _finder(self) -> FaultFinder:
        return FaultFinder(self.arrays.device, self.arrays.store, self.arrays.weights, self.arrays.options.compute)

    def _check_outputs(self, outputs: Mapping[str, Array]) -> None:
        """Raise `ShapeError` if a loss is not defined for the values of its output."""
        losses = self.arrays.losses
        for name, y in outputs.items():
            if name in losses.of:
                with naming_output(losses, name):
                    losses.of[name].check_output(y)


class BatchForm:
    """Facts about the batches of a plan, computed once instead of at each update.

    Parameters
    ----------
    plan : the execution plan

    Attributes
    ----------
    draws : whether training draws random numbers and needs the key of a pass
    """

    def __init__(self, plan: Plan) -> None:
        mixing = mixing_step(plan)
        self.plan = plan
        self._mixing = None if mixing is None else f"{mixing.op} at {mixing.where}"
        """The first layer that treats the rows of a call as one sequence. Rows of several axes are samples."""
        self._axes = len(plan.values[plan.inputs[INPUT]].shape)
        self.draws: bool = any(spec.draws for step in plan.steps if (spec := step.attrs.get("spec")) is not None)
        self._ids = [name for name, i in plan.inputs.items() if plan.values[i].dtype == "int32"]

    def checked(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], bool]:
        """Return the inputs of a batch in the plan's order and dtypes, and whether they are sequences.

        Raises
        ------
        ShapeError : an input is missing, unknown or of a wrong shape, inputs differ in samples or length, or samples
            must be sequences and are not
        GenerationError : an id is out of range of an embedding
        """
        inputs = inputs_by_name(self.plan, inputs)
        x = inputs[INPUT]
        many = x.ndim == self._axes + 1
        if self._mixing is not None and not many:
            raise ShapeError(
                f"{self._mixing} reads other rows, so a sample must be a sequence of rows, but inputs of shape "
                f"{x.shape} are one sequence",
                hint="add a leading axis to inputs, targets and mask: [samples, T, …]",
            )
        lead = x.shape[: 2 if many else 1]
        for name, other in inputs.items():
            if other.shape[: len(lead)] != lead:
                raise ShapeError(
                    f"the inputs of a batch must have the same samples and lengths, got {INPUT} "
                    f"{list(x.shape)} and {name} {list(other.shape)}"
                )
        rows = {name: x.reshape(-1, *x.shape[2:]) if many else x for name, x in inputs.items()}
        checked = check_inputs(self.plan, rows)
        for name in self._ids:
            check_vocabulary(self.plan, checked[name].ravel(), name)
        return {name: x.reshape(inputs[name].shape) for name, x in checked.items()}, many


def check_statistics(layer: str | None, *, sequences: bool) -> None:
    """Raise `SpecError` if a layer takes batch statistics and samples are sequences of rows."""
    if layer is not None and sequences:
        raise SpecError(
            f"{layer} takes statistics over the samples of a batch, so samples cannot be sequences",
            hint="treat a sequence as one row of the network: input_shape=(T, features)",
        )


def statistics_layer(plan: Plan, learned: Collection[str]) -> str | None:
    """Return the first layer that takes batch statistics while training changes the buffers `learned`."""
    for step in plan.steps:
        spec: LayerSpec | None = step.attrs.get("spec")
        if spec is None or spec.batch_statistics == "never":
            continue
        if all(step.params[b.name] in learned for b in spec.buffers()):
            return f"{step.op} at {step.where}"
    return None
