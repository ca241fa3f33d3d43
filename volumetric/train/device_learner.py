"""The learner on any device: an update is one graph, and all arrays stay on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.graph import GraphDevice
from volumetric.graph.graph_device import HasGraphs
from volumetric.graph.parameter_stacks import ParameterStacks
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.observe.layer_events import Observer
from volumetric.run import lower
from volumetric.run.plan import with_outputs
from volumetric.train.backprop_credit import BackpropCredit
from volumetric.train.data import Batch
from volumetric.train.forward_weights import stacked_weights
from volumetric.train.learner import LearnerOptions, LearnerState, OpenLearner, StepReport
from volumetric.train.modes import Backprop, Systolic, TargetPropagation
from volumetric.train.output_losses import Tally
from volumetric.train.picked_batch import AnySamples, as_batch
from volumetric.train.strategies import CreditStrategy, TimeStrategy, Update
from volumetric.train.trainable import check_state
from volumetric.train.trained_arrays import TrainedArrays
from volumetric.train.whole_batches import WholeTime


def learner_on(device: HasGraphs) -> OpenLearner:
    """Return a learner factory for `train`: updates run on `device`.

    Examples
    --------
    >>> train(network, params, data, learner=learner_on(open_device("gpu")))  # doctest: +SKIP
    """

    def open_learner(network: Network, params: Params, options: LearnerOptions) -> DeviceLearner:
        return DeviceLearner(network, params, options, device.graphs())

    return open_learner


class DeviceLearner:
    """Trains on a `GraphDevice`, composed of arrays, a `TimeStrategy` strategy and a `CreditStrategy` strategy.

    After a non-finite number the host repeats the update to name the layer.

    Parameters
    ----------
    options : their mode selects time and credit, see `TimeStrategy` and `CreditStrategy`
    device : where graphs run

    Attributes
    ----------
    arrays : the trained arrays, on the device
    time, credit : the strategies of the learner

    Raises
    ------
    SpecError : the mode trains clocked networks, and `clocked` is not set
    UnsupportedError : the device cannot hold a scheme, as 64-bit types on most GPUs; or the mode cannot train a layer
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        mode = options.mode
        clocked = None if isinstance(mode, Backprop) else options.clocked
        if clocked.network is not network if clocked is not None else isinstance(mode, Systolic):
            raise SpecError(f"mode {mode.kind!r} needs a clocked network", hint="train(Clocked(network=network), …)")
        options.losses.check(network)
        # a tick computes everything, whatever the delays of links; otherwise steps that no loss needs are skipped
        plan = with_outputs(lower(network), options.losses.of) if clocked is None else lower(clocked.delayed)
        self.arrays: TrainedArrays = TrainedArrays(network, params, options, device, plan, self._stacked)
        self.time: TimeStrategy
        self.credit: CreditStrategy
        self.time, self.credit = _time_and_credit(self.arrays, clocked)

    def _stacked(self, arrays: TrainedArrays) -> ParameterStacks:
        """Return the parameters that are stored stacked: those that one launch can read and write together."""
        options = arrays.options
        if isinstance(options.mode, TargetPropagation):
            return ParameterStacks()  # each weight has its own rate, from the budgets of its layers
        if isinstance(options.mode, Systolic) and options.clocked is not None:
            from volumetric.train.ticked_time import bucket_stacks

            return bucket_stacks(options.clocked, arrays)
        if not arrays.device.parted or options.overlay is not None:
            return ParameterStacks()
        return stacked_weights(arrays.plan, arrays.shapes, arrays.schemes)

    @property
    def state(self) -> LearnerState:
        """A copy of the state that the next update depends on."""
        whole = self.arrays.state
        return dataclasses.replace(
            whole, buffers={**whole.buffers, **self.credit.buffers}, carried=self.time.carried_arrays
        )

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` if its arrays do not match this network."""
        check_state(state, self.state, self.arrays.options)
        self.time.restore(state.carried)
        self.arrays.restore(state)
        self.credit.restore(state.buffers)

    def windows(self, batch: Batch) -> Iterator[Batch]:
        """Yield the arguments of `step` for a batch, in order: windows of a clocked network, else the batch."""
        return self.time.windows(batch)

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update from all `batches` together; a fault leaves every weight unchanged."""
        return self._report(batches, rate, self.credit.update(batches, rate))

    def steps(self, batches: Sequence[AnySamples], *, rates: Sequence[float]) -> list[StepReport]:
        """Make one update from each batch; see `SeriesLearner.steps`."""
        alone = self.time.unobserved(len(batches))
        updates = None if alone < 2 else self.credit.updates(batches[:alone], rates[:alone])
        if updates is None:
            return [self.step([as_batch(batches[0])], rate=rates[0])]
        return [
            self._report([batch], rate, update)
            for batch, rate, update in zip(batches, rates, updates, strict=False)  # the others were not made
        ]

    def _report(self, batches: Sequence[AnySamples], rate: float, update: Update) -> StepReport:
        """Count an update, or name its fault."""
        clip, tally, norm = self.arrays.options.clip, update.tally, update.norm
        if not update.good:
            fault = self.credit.fault([as_batch(batch) for batch in batches], rate, tally)
            norm = norm if np.isfinite(tally.total) else np.nan
            return StepReport(tally=dataclasses.replace(tally, fault=fault), gradient_norm=norm, fault=fault)
        self.arrays.updates += 1
        self.time.finish_update(batches)
        if not np.isfinite(norm):  # with a loss scale: skipped
            return StepReport(tally=tally, gradient_norm=float("inf"))
        clipped = clip is not None and update.steepest > clip
        return StepReport(tally=tally, gradient_norm=norm, clipped=clipped, layers=update.layers)

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch."""
        return self.time.judge(batch, outputs=False)[0]

    def measure(self, batch: Batch) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch, and the outputs that have targets."""
        return self.time.judge(batch, outputs=True)

    def watch(self, observers: Sequence[Observer]) -> None:
        """Report statistics of every layer, forward and backward, to `observers` from the next update on.

        The device computes statistics in one more run for each batch, and updates with statistics are submitted alone.
        """
        self.time.watch(observers)

    def params(self) -> Params:
        """Return the current weights; stores that are neither trained nor converted are the originals."""
        return self.arrays.params()


def _time_and_credit(arrays: TrainedArrays, clocked: Clocked | None) -> tuple[TimeStrategy, CreditStrategy]:
    """Return time and credit of a learner for its mode."""
    mode = arrays.options.mode
    if clocked is not None:
        from volumetric.train.ticked_time import TickedTime

        ticked = TickedTime(arrays, clocked)
        if not isinstance(mode, TargetPropagation):
            return ticked, BackpropCredit(arrays, ticked)
        from volumetric.train.online_credit import OnlineCredit

        return ticked, OnlineCredit(arrays, ticked, mode)
    if isinstance(mode, Backprop) and mode.carry:
        from volumetric.train.tbptt import CarriedTime

        carried = CarriedTime(arrays)
        return carried, BackpropCredit(arrays, carried)
    time = WholeTime(arrays)
    if isinstance(mode, TargetPropagation):
        from volumetric.train.target_credit import TargetCredit

        return time, TargetCredit(arrays, time, mode)
    return time, BackpropCredit(arrays, time)
