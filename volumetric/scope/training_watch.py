"""Watches a training run from within: a reporter and an observer in one, which feed a page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from volumetric.base.errors import SpecError
from volumetric.base.reporting import event_fields
from volumetric.observe.layer_events import LayerEvent
from volumetric.scope.training_record import TrainingRecord
from volumetric.scope.training_settings import settings_of
from volumetric.train.data import ArrayData
from volumetric.train.epoch_end import EpochEnd
from volumetric.train.epoch_files import probe_event, weights_event
from volumetric.train.sample_probe import MOST_SAMPLES, SampleProbe
from volumetric.train.training_events import EpochEvent, Event, StepEvent, StopEvent
from volumetric.train.weight_statistics import WeightStatistics

SHARE: Final = 0.02
"""Share of the run's time that statistics take at most."""
_MOST_WAITING: Final = 2_000

Waiting: TypeAlias = "Event | LayerEvent | Mapping[str, Any]"


class TrainingWatch:
    """Watches a run of `train`: pass it as a reporter and, for statistics of layers, as an observer.

    The training thread only appends events to a queue. Statistics of layers, weights and samples are computed as often
    as `share` of the run's time allows; those of the first time, which may compile kernels, come on top. Updates
    without statistics go to the device together as without a watch. Clocked networks have no statistics of layers.

    Parameters
    ----------
    name : name of the run on the page
    samples : number of validation samples, or training samples without validation, that are shown with predictions,
        at most 24; 0: none
    share : share of the run's time that statistics take at most, 0 … 1; 1: at every update and epoch
    shape : shape of a sample, as ``(1, 28, 28)`` for pictures that are stored flat

    Attributes
    ----------
    record : what is known of the run; `drain` brings it up to date

    Raises
    ------
    SpecError : `samples` or `share` is out of range

    Examples
    --------
    >>> watch = TrainingWatch()  # doctest: +SKIP
    >>> server = training_viewer(watch).serve()  # doctest: +SKIP
    >>> train(network, x, y, reporters=[watch], observers=[watch])  # doctest: +SKIP
    """

    def __init__(
        self, name: str = "run", *, samples: int = MOST_SAMPLES, share: float = SHARE, shape: tuple[int, ...] = ()
    ) -> None:
        if not 0 <= share <= 1:
            raise SpecError(f"share must be in 0 … 1, got {share}")
        self._count = samples
        self._probe = SampleProbe(samples) if samples else None
        self._statistics = WeightStatistics()
        self._layers, self._epochs = _TimeBudget(share / 2), _TimeBudget(share / 2)
        self._observed = -1
        self._typical = 0.0
        self._waiting: deque[Waiting] = deque()
        self._lock = threading.RLock()
        self._samples_sent = False
        self.record: TrainingRecord = TrainingRecord(name)
        self.record.shape = shape

    def start(self, step: int, epoch: int | None = None) -> None:
        """Begin, as a reporter; forget what a resumed run repeats. As an observer, do nothing."""
        if epoch is None:
            return
        self._layers.begin()
        self._epochs.begin()
        self._observed, self._typical, self._samples_sent = -1, 0.0, False
        self._probe = SampleProbe(self._count) if self._count else None
        self._statistics = WeightStatistics()
        with self._lock:
            self.drain()
            if len(self.record.steps):
                self.record.restart_after(step or -1)

    def report(self, event: Event, /) -> None:
        """Queue an event."""
        if isinstance(event, StepEvent):
            if event.step == self._observed:
                self._layers.spend(max(0.0, event.seconds - self._typical))
            else:
                # nearly the fastest of late: an update that had to wait would make statistics seem free
                self._typical = min(event.seconds, 1.01 * self._typical or event.seconds)
        elif not isinstance(event, EpochEvent | StopEvent):
            return
        self._waiting.append(event)
        if len(self._waiting) > _MOST_WAITING:
            self.drain()

    def wants(self, step: int) -> bool:
        """Whether the time allows statistics of layers now."""
        return self._layers.allows()

    def observe(self, event: LayerEvent) -> None:
        """Queue statistics of a layer."""
        self._observed = event.step
        self._waiting.append(event)

    def end_epoch(self, state: EpochEnd) -> None:
        """Queue statistics of weights and predictions, if the time allows, and at the end of the run."""
        if not self.record.settings:
            self.record.settings = _settings(state)
        if not (self._epochs.allows() or state.last):
            return
        began = time.perf_counter()
        self._waiting.append(weights_event(self._statistics, state))
        predictions = None if self._probe is None else self._probe.read(state)
        if predictions is not None and self._probe is not None and self._probe.samples is not None:
            if not self._samples_sent:
                self._waiting.append(probe_event(self._probe.samples))
                self._samples_sent = True
            self._waiting.append(probe_event(predictions))
        self._epochs.spend(time.perf_counter() - began)

    def close(self) -> None:
        """Take the last events into the record."""
        self.drain()
        with self._lock:
            self.record.end_layers()
            if self.record.running:
                self.record.running, self.record.status = False, self.record.status or "ended by an error"

    def drain(self) -> bool:
        """Move queued events into `record`; return whether there were any."""
        with self._lock:
            count = len(self._waiting)
            events = [self._waiting.popleft() for _ in range(count)]
            self.record.add_updates([event for event in events if isinstance(event, StepEvent)])
            for event in events:
                if isinstance(event, Mapping):
                    self.record.add(event)
                elif isinstance(event, LayerEvent):
                    self.record.add(_layer_fields(event))
                elif not isinstance(event, StepEvent):
                    self.record.add(event_fields(event))
            return count > 0


class _TimeBudget:
    """Allows something as long as it takes a share of the time at most; its first time is free.

    Parameters
    ----------
    share : of the time since `begin`
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.begin()

    def begin(self) -> None:
        self._began, self._count, self._spent, self._last = time.perf_counter(), 0, 0.0, 0.0

    def allows(self) -> bool:
        if self._share >= 0.5 or not self._count:
            return True
        return self._spent + self._last <= self._share * (time.perf_counter() - self._began)

    def spend(self, seconds: float) -> None:
        if self._count:
            self._spent += seconds
            self._last = seconds
        self._count += 1


def _settings(state: EpochEnd) -> dict[str, str]:
    structure = getattr(state.network, "network", state.network)
    data = state.samples
    facts = {"samples": len(data), "batch_size": data.batch_size} if isinstance(data, ArrayData) else {}
    part = "validation" if state.held_out else "data"
    return settings_of({"network": structure.to_json(), "config": state.config.describe(), part: facts})


def _layer_fields(event: LayerEvent) -> dict[str, Any]:
    stats = event.stats
    numbers = {"mean": stats.mean, "min": stats.min, "max": stats.max, "active": stats.active}
    return {"mode": event.mode, "step": event.step, "where": event.where, "kind": event.kind, "stats": numbers}
