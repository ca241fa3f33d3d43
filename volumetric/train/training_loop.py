"""The training loop: epochs, reports, validation, early stopping, checkpoints."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from volumetric.base.errors import CheckpointError
from volumetric.base.reporting import Reporter, call_each
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice
from volumetric.network import OUTPUT, Network
from volumetric.network.weight_store import Params
from volumetric.train.data import ArrayData, Batch, Data, SplitData
from volumetric.train.divergence import DivergedError, largest_entry, odd_entry
from volumetric.train.epoch_end import EpochEnd
from volumetric.train.evaluation import Evaluation, judge
from volumetric.train.latency import warn_of_latency
from volumetric.train.learner import Learner, SeriesLearner, StepReport, WindowedLearner
from volumetric.train.lora import trained_keys
from volumetric.train.notices import warn_of_skipped_updates, warn_of_standstill
from volumetric.train.picked_batch import AnySamples, as_batch, in_groups, picked_batches
from volumetric.train.precision import master_of, trained_store
from volumetric.train.submission_pace import MOST, SubmissionPace
from volumetric.train.train_result import EpochHistory, Progress, TrainResult
from volumetric.train.training_checkpoint import Checkpoint, CheckpointStore, check_run, describe_run, read_checkpoint
from volumetric.train.training_config import TrainConfig
from volumetric.train.training_events import EpochEvent, Event, StepEvent, StopEvent, TargetEvent


@dataclass(slots=True, kw_only=True)
class TrainingLoop:
    """One call of `train`."""

    network: Network | Clocked
    initial_params: Params
    config: TrainConfig
    data: Data
    validation: Data | None
    given_data: Mapping[str, ArrayData]
    reporters: Sequence[Reporter[Event]]
    store: CheckpointStore | None
    learner: Learner
    stop: Callable[[], bool]
    metric: Callable[[Params], float] | None
    stops_between: bool = False
    """Whether something is asked between two updates, so that by default each is submitted alone."""
    device: AnyDevice = "auto"
    step: int = 0
    begun: bool = False
    steepest: float = 0.0
    written: bool = False
    """Whether an update changed weights; with a loss scale the first ones may be skipped."""
    progress: Progress = field(default_factory=Progress)
    best: Params | None = None
    description: dict[str, Any] = field(default_factory=dict)
    saved: tuple[int, int, int] | None = None
    pace: SubmissionPace = field(default_factory=SubmissionPace)
    picked: ArrayData | None = None
    """The data, if the learner takes its batches as indices."""
    crosses: bool = False
    """Whether updates of two epochs may be submitted together: nothing but a report happens between them."""

    def __post_init__(self) -> None:
        """Describe the run, if checkpoints are written, and find out how its batches are passed."""
        if isinstance(self.learner, SeriesLearner) and isinstance(training := self._training, ArrayData):
            self.picked = training
            looks = self.validation, self.metric, self.store, *self._epoch_readers
            crossing = self.config.accumulate == 1 and not self.config.accuracy
            self.crosses = crossing and all(look is None for look in looks)
        if self.store is not None:
            self.description = describe_run(self.network, self.initial_params, self.config, self.data, self.validation)

    def begin(self, *, resume: bool) -> None:
        """Continue from the newest checkpoint, if requested, and start the reporters."""
        newest = None if self.store is None else self.store.latest()
        if self.store is not None and newest is not None:
            if not resume:
                raise CheckpointError(
                    f"{self.store.directory} has checkpoints of an earlier run",
                    hint="resume that run, or choose another directory",
                )
            self._continue(newest)
        if self.store is not None:
            self.store.sweep()
        call_each(self.reporters, lambda reporter: reporter.start(self.step, self.progress.epoch))

    def go(self) -> TrainResult:
        """Train until there is a reason to stop."""
        began, reason = time.perf_counter(), self._reason()
        while reason is None:
            reason = self._epoch()
        if self.begun and not self.written:
            warn_of_skipped_updates()
        self._save()
        history = [EpochEvent(**fields) for fields in self.progress.history]
        last = self._broken_off(reason)
        self._report(StopEvent(step=self.step, epoch=self.progress.epoch, reason=reason))
        params = self.learner.params()
        overlays = self.learner.state.masters if self.config.overlay is not None else {}
        return TrainResult(
            params=params,
            overlays=overlays,
            best=params if self.best is None else self.best,
            reason=reason,
            steps=self.step,
            history=EpochHistory(history if last is None else [*history, last]),
            network=self.network,
            device=self.device,
            seconds=time.perf_counter() - began,
        )

    @property
    def _epoch_readers(self) -> list[Callable[[EpochEnd], object]]:
        """Methods of reporters that look at weights and samples at the end of an epoch."""
        readers = (getattr(reporter, "end_epoch", None) for reporter in self.reporters)
        return [read for read in readers if read is not None]

    @property
    def _training(self) -> Data:
        """Yield the batches of updates; for a clocked network, windows of its sequences."""
        if isinstance(self.network, Clocked) and isinstance(self.learner, WindowedLearner):
            return SplitData(self.data, self.learner.windows)
        return self.data

    def _epoch(self) -> str | None:
        """Train to the end of the epoch, of the run if submissions cross epochs, or to `max_steps`.

        Returns
        -------
        The reason to stop, if any.
        """
        config, groups, waiting = self.config, self._groups(), list[list[AnySamples]]()
        failure: Exception | None = None
        while True:
            if failure is None:
                failure = _read_ahead(groups, self._steps_together(), waiting)
            if not waiting:
                break
            if self._out_of_steps():
                return "max_steps"  # in the middle of an epoch: a resume with more steps completes it
            del waiting[: self._updates(waiting)]
            if config.checkpoint_every is not None and self.step % config.checkpoint_every == 0:
                self._save()
            if self.stop():
                return "interrupted"
        if failure is not None:
            raise failure  # after the updates before it, as if each had been made before the next batch was read
        self._end_epoch()
        self._save()
        return self._reason()

    def _groups(self) -> Iterator[list[AnySamples]]:
        """Yield the batches of the updates of the rest of the epoch, and of the next ones if submissions cross it."""
        progress, data, config = self.progress, self.picked, self.config
        if data is None:
            batches = self._training.batches(progress.epoch, progress.batch)
            if config.accumulate > 1 or (config.steps_per_submission or 1) > 1:
                batches = (batch.copy() for batch in batches)  # several wait, and a stream may reuse its arrays
            return in_groups(batches, config.accumulate)
        rest = picked_batches(data, progress.epoch, progress.batch)
        if self.crosses:
            later = range(progress.epoch + 1, config.epochs)
            rest = itertools.chain(rest, itertools.chain.from_iterable(picked_batches(data, epoch) for epoch in later))
        return in_groups(rest, config.accumulate)

    def _steps_together(self) -> int:
        """Return how many updates are submitted together now: checkpoints and the end of the run come after them."""
        config = self.config
        if config.accumulate > 1 or not isinstance(self.learner, SeriesLearner):
            return 1
        chosen = config.steps_per_submission
        if chosen is None:
            chosen = 1 if self.stops_between or self.picked is None else self.pace.steps
        chosen = min(chosen, MOST)  # batches of a stream wait in memory
        if config.checkpoint_every is not None:
            chosen = min(chosen, config.checkpoint_every - self.step % config.checkpoint_every)
        return chosen if config.max_steps is None else max(1, min(chosen, config.max_steps - self.step))

    def _updates(self, waiting: list[list[AnySamples]]) -> int:
        """Make updates together, or one, and report each; return their number."""
        config, began = self.config, time.perf_counter()
        rates = [config.optimiser.lr * config.schedule(self.step + ahead) for ahead in range(len(waiting))]
        if len(waiting) > 1 and isinstance(self.learner, SeriesLearner):
            reports = self.learner.steps([batch for [batch] in waiting], rates=rates)
        else:
            reports = [self.learner.step([as_batch(batch) for batch in waiting[0]], rate=rates[0])]
        seconds = (time.perf_counter() - began) / len(reports)
        self.pace.record(seconds)
        for batches, report, rate in zip(waiting, reports, rates, strict=False):
            self._record(batches, report, rate, seconds)
            ended = self.crosses and self.picked is not None and self.progress.batch == self.picked.batches_per_epoch
            if ended and self.progress.epoch + 1 < config.epochs:
                self._end_epoch()  # the last one ends with the data
        return len(reports)

    def _record(self, batches: list[AnySamples], report: StepReport, rate: float, seconds: float) -> None:
        """Count an update, and report it."""
        config, progress = self.config, self.progress
        if report.fault is not None:
            self._diverged(report.fault, self.step + 1, [as_batch(batch) for batch in batches])
        if not self.begun:
            warn_of_latency(self.network, config.mode, [as_batch(batch) for batch in batches])
        self.begun = True
        self.steepest = max(self.steepest, report.gradient_norm)
        self.written = self.written or isfinite(report.gradient_norm)
        self.step += 1
        progress.batch += len(batches)
        both = progress.tally + report.tally
        progress.terms = {name: (of.total, of.count) for name, of in both.terms.items()}
        self._report(self._step_event(report, rate, seconds))
        if report.layers:
            self._report(TargetEvent(step=self.step, epoch=progress.epoch, layers=report.layers))

    def _step_event(self, report: StepReport, rate: float, seconds: float) -> StepEvent:
        return StepEvent(
            step=self.step,
            epoch=self.progress.epoch,
            loss=self.config.losses.value(report.tally),
            rate=rate,
            gradient_norm=report.gradient_norm,
            clipped=report.clipped,
            seconds=seconds,
            losses=self.config.losses.each(report.tally),
        )

    def _end_epoch(self) -> None:
        progress, event = self.progress, self._epoch_event(judging=True)
        if event.improved and event.validation_loss is not None:
            progress.best_loss, progress.epochs_since_best = event.validation_loss, 0
            self.best = self.learner.params()
        elif event.validation_loss is not None:
            progress.epochs_since_best += 1
        progress.history.append(dataclasses.asdict(event))
        progress.epoch, progress.batch, progress.terms = progress.epoch + 1, 0, {}
        self._report(event)
        if readers := self._epoch_readers:
            state = EpochEnd(
                step=event.step,
                epoch=event.epoch,
                last=self._reason() is not None,
                config=self.config,
                network=self.network,
                samples=self.data if self.validation is None else self.validation,
                held_out=self.validation is not None,
                params=cache(self.learner.params),
                outputs=lambda batch: self.learner.measure(batch)[1],
            )
            for read in readers:
                read(state)

    def _broken_off(self, reason: str) -> EpochEvent | None:
        """Return the event of an incomplete epoch, only for the result: a resumed run completes the epoch."""
        if not self.progress.batch:
            return None
        event = self._epoch_event(judging=reason == "max_steps")
        if event.improved:
            self.best = self.learner.params()
        return event

    def _epoch_event(self, *, judging: bool) -> EpochEvent:
        """Return the event of the epoch so far."""
        progress = self.progress
        tally, losses = progress.tally, self.config.losses
        if not (self.steepest or progress.epoch) and losses.value(tally):
            warn_of_standstill(losses.value(tally))
        judged = self._judge() if judging else None
        validation = None if judged is None or self.validation is None else judged.loss
        return EpochEvent(
            step=self.step,
            epoch=progress.epoch,
            loss=losses.value(tally),
            validation_loss=validation,
            improved=validation is not None and validation < progress.best_loss - self.config.min_delta,
            metric=None if self.metric is None else self.metric(self.learner.params()),
            accuracy=None if judged is None else judged.accuracy,
            losses=losses.each(tally),
            validation_losses={} if judged is None or self.validation is None else judged.losses,
            accuracies={} if judged is None else judged.accuracies,
        )

    def _judge(self) -> Evaluation | None:
        """Evaluate the held-out samples or, without them and if accuracy is set, all samples."""
        validation, classes = self.validation, bool(self.config.accuracy)
        if validation is None and not classes:
            return None
        batches = self.data.batches(self.progress.epoch) if validation is None else validation.batches(0)
        evaluation, odd = judge(self.learner, self.config.losses, batches, classes=classes)
        if odd is not None:
            self._diverged(f"in validation, {evaluation.fault}", self.step, [odd])
        return evaluation

    def _reason(self) -> str | None:
        """Return the reason to end training between two epochs, if any."""
        config, progress = self.config, self.progress
        if config.patience is not None and progress.epochs_since_best >= config.patience:
            return "patience"
        if progress.epoch >= config.epochs:
            return "epochs"
        # In the middle of an epoch only the data know whether batches are left.
        return "max_steps" if self._out_of_steps() and progress.batch == 0 else None

    def _out_of_steps(self) -> bool:
        return self.config.max_steps is not None and self.step >= self.config.max_steps

    def _diverged(self, where: str, at: int, batches: Sequence[Batch]) -> NoReturn:
        """Stop with an error; non-finite numbers in the data are named by their index in the data passed to `train`."""
        odd_place = next(filter(None, (odd_entry(batch, "in the batch, ") for batch in batches)), "")
        if odd_place:
            odd_place = next(filter(None, (odd_entry(data, of) for of, data in self.given_data.items())), odd_place)
        self._report(StopEvent(step=at, epoch=self.progress.epoch, reason="diverged", where=odd_place or where))
        raise DivergedError(
            at,
            where,
            None if self.store is None else self.store.latest(),
            odd_place,
            rate=self.config.optimiser.lr,
            largest=max(map(largest_entry, batches), default=0.0),
            halves=self.config.compute == "float16",
        )

    def _report(self, event: Event) -> None:
        call_each(self.reporters, lambda reporter: reporter.report(event))

    def _save(self) -> None:
        """Write a checkpoint, unless the newest one is of this update."""
        place = (self.step, self.progress.epoch, self.progress.batch)
        if self.store is None or self.saved == place:
            return
        state = self.learner.state
        self.store.save(
            Checkpoint(
                learner=state,
                best={}
                if self.best is None
                else {
                    key: master_of(self.best[key])
                    for key in (*trained_keys(state.masters), *state.buffers)
                    if key in self.best  # additional trained arrays are not part of the network
                },
                progress=dataclasses.asdict(self.progress),
                run=self.description,
            )
        )
        self.saved = place

    def _continue(self, path: Path) -> None:
        checkpoint = read_checkpoint(path)
        check_run(path, checkpoint.run, self.description)
        try:
            progress = dict(checkpoint.progress)
            if "total" in progress:  # written by a version with only one loss
                progress["terms"] = {OUTPUT: (progress.pop("total"), progress.pop("count"))}
            self.progress = Progress(**progress)
        except TypeError as error:
            raise CheckpointError(f"{path}: {error}") from error
        self.learner.restore(checkpoint.learner)
        self.step = checkpoint.learner.updates
        if checkpoint.best:
            now = self.learner.params()
            best = {key: trained_store(w, now[key].scheme) for key, w in checkpoint.best.items()}
            self.best = Params({key: best.get(key, store) for key, store in now.items()})
        self.saved = (self.step, self.progress.epoch, self.progress.batch)


def _read_ahead(groups: Iterator[list[AnySamples]], steps: int, waiting: list[list[AnySamples]]) -> Exception | None:
    """Read the batches of updates until `steps` wait; return an error of the data, which comes behind those updates."""
    try:
        while len(waiting) < steps and (group := next(groups, None)) is not None:
            waiting.append(group)
    except Exception as error:
        return error
    return None
