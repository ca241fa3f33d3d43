"""Comparison of training methods: same initial weights, same samples, same held-out test samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from volumetric.analysis import accuracy, predict
from volumetric.base.errors import SpecError
from volumetric.base.text_table import TextTable
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.data import AnyData, Data, as_data
from volumetric.train.divergence import DivergedError
from volumetric.train.learner import OpenLearner
from volumetric.train.learner_opening import open_learner
from volumetric.train.trainer import train
from volumetric.train.training_config import TrainConfig
from volumetric.train.training_events import EpochEvent, Event, StepEvent

MILESTONES: Final = tuple(range(10, 101, 10))
"""Accuracies, in percent, for which the time of first reaching them is recorded."""
CLEARLY: Final = 0.01
"""Difference of accuracy above which one method is better regardless of the losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of training: settings, and where to compute (see `train`)."""

    config: TrainConfig
    device: AnyDevice = "auto"
    learner: OpenLearner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Results of one method.

    Attributes
    ----------
    steps : updates made
    accuracy : on the held-out samples, at the end
    loss : of the last epoch, NaN if there was none
    seconds : of training, without evaluation
    to_target : seconds until the target accuracy, or None
    milestones : percent of accuracy → seconds until it was first reached, at the end of an epoch
    fault : why training stopped early, or None
    """

    steps: int
    accuracy: float
    loss: float
    seconds: float
    to_target: float | None
    milestones: Mapping[int, float]
    fault: str | None = None

    def describe(self) -> dict[str, Any]:
        """Return JSON data, without the loss if there is none."""
        return {
            "steps": self.steps,
            "accuracy": self.accuracy,
            "loss": self.loss if np.isfinite(self.loss) else None,
            "time_total": self.seconds,
            "time_to_target": self.to_target,
            "milestones": {str(percent): seconds for percent, seconds in self.milestones.items()},
            "fault": self.fault,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Name of a method → its results."""

    results: Mapping[str, Metrics]

    @property
    def best(self) -> str:
        """The method of the highest accuracy; among those less than a point below it, the one of the lowest loss."""
        top = max(metrics.accuracy for metrics in self.results.values())
        near = {name: m for name, m in self.results.items() if top - m.accuracy <= CLEARLY}
        return min(near, key=lambda name: (np.nan_to_num(near[name].loss, nan=np.inf), -near[name].accuracy))

    def summary(self) -> TextTable:
        """Return the table that ``print`` shows; the best method has a star."""
        rows = tuple(
            (
                name + " *" * (name == self.best),
                f"{m.accuracy:.2%}",
                f"{m.loss:.4g}",
                f"{m.steps:,}",
                f"{m.seconds:.2f}",
                "" if m.to_target is None else f"{m.to_target:.2f}",
                m.fault or "",
            )
            for name, m in self.results.items()
        )
        columns = ("method", "accuracy", "loss", "updates", "seconds", "seconds to target", "fault")
        return TextTable(columns=columns, rows=rows, right=frozenset(columns[1:-1]))

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()

    def describe(self) -> dict[str, Any]:
        """Return JSON data."""
        return {"best": self.best, "methods": {name: metrics.describe() for name, metrics in self.results.items()}}


def compare(
    network: Network,
    params: Params,
    data: AnyData,
    methods: Mapping[str, Method],
    test: tuple[np.ndarray, np.ndarray],
    *,
    target: float = 0.95,
) -> Comparison:
    """Train `params` by each method and evaluate the results by their accuracy on `test`.

    A method that diverges is evaluated with the weights of its last complete epoch.

    Parameters
    ----------
    methods : name → method
    test : inputs and targets, class ids or probabilities
    target : accuracy; the time to reach it is measured

    Raises
    ------
    SpecError
        `methods` is empty, or `target` is not in 0 … 1.
    """
    if not methods:
        raise SpecError("no methods to compare")
    if not 0 <= target <= 1:
        raise SpecError(f"target must be an accuracy in 0 … 1, got {target}")
    source = as_data(data)
    return Comparison(results={name: _judge(network, params, source, m, test, target) for name, m in methods.items()})


@dataclass(slots=True)
class _UpdateClock:
    """A reporter that sums the time of updates and records the results of epochs."""

    seconds: float = 0.0
    steps: int = 0
    epochs: list[tuple[float, EpochEvent]] = field(default_factory=list)

    def start(self, step: int, epoch: int) -> None:
        """Nothing to begin."""

    def report(self, event: Event) -> None:
        """Record an event."""
        if isinstance(event, StepEvent):
            self.seconds += event.seconds
            self.steps = event.step
        elif isinstance(event, EpochEvent):
            self.epochs.append((self.seconds, event))

    def close(self) -> None:
        """Nothing to close."""


def _judge(
    network: Network,
    params: Params,
    data: Data,
    method: Method,
    test: tuple[np.ndarray, np.ndarray],
    target: float,
) -> Metrics:
    """Train by a method, and return its metrics on the samples of `test`, (inputs, class ids)."""
    clock, fault, device = _UpdateClock(), None, open_device(method.device)

    def correct(weights: Params) -> float:
        return accuracy(predict(network, weights, test[0], device=device), test[1])

    began = time.perf_counter()
    before = correct(params)
    try:
        learner = method.learner or open_learner(device)
        train(network, params, data, method.config, reporters=[clock], learner=learner, metric=correct)
    except DivergedError as error:
        fault = str(error)
    reached: Sequence[tuple[float, float]] = [(at, e.metric or 0.0) for at, e in clock.epochs]
    return Metrics(
        steps=clock.steps,
        accuracy=reached[-1][1] if reached else before,
        loss=clock.epochs[-1][1].loss if clock.epochs else float("nan"),
        seconds=min(clock.seconds, time.perf_counter() - began),
        to_target=_first(reached, target),
        milestones={p: at for p in MILESTONES if (at := _first(reached, p / 100)) is not None},
        fault=fault,
    )


def _first(reached: Sequence[tuple[float, float]], level: float) -> float | None:
    return next((at for at, value in reached if value >= level), None)
