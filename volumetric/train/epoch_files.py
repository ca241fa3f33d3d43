"""Files with a line for every epoch: statistics of weights, and predictions for a few samples."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from volumetric.train.epoch_end import EpochEnd
from volumetric.train.history import JsonlReporter
from volumetric.train.sample_probe import ProbedPredictions, ProbedSamples, SampleProbe
from volumetric.train.weight_statistics import WeightStatistics


class _EpochFile(JsonlReporter):
    """Writes lines at the end of epochs; events are not written."""

    def report(self, event: Any, /) -> None:
        """Write nothing."""

    def _is_before(self, fields: Mapping[str, Any], step: int, epoch: int) -> bool:
        return fields["event"] == ProbedSamples.event or int(fields["epoch"]) < epoch

    def _write(self, fields: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(self._line(fields))
            self._file.flush()


class WeightReporter(_EpochFile):
    """Writes norm, change and histogram of each array of weights at the end of every epoch, as JSON.

    Each epoch costs about 15 ns for each weight; a copy of the weights stays in memory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._statistics = WeightStatistics()

    def end_epoch(self, state: EpochEnd) -> None:
        """Write a line."""
        self._write(weights_event(self._statistics, state))


class SampleReporter(_EpochFile):
    """Writes a few samples, and at the end of every epoch their predictions and the confusion of classes, as JSON.

    Parameters
    ----------
    path : the file
    count : number of samples, at most 24; a confusion matrix counts up to 1,000

    Raises
    ------
    SpecError : `count` is out of range
    """

    def __init__(self, path: str | os.PathLike[str], count: int) -> None:
        super().__init__(path)
        self._probe = SampleProbe(count)

    def end_epoch(self, state: EpochEnd) -> None:
        """Write a line, and the samples before the first one."""
        new = self._probe.samples is None
        predictions = self._probe.read(state)
        if predictions is None or self._probe.samples is None:
            return
        if new and not (state.epoch and _begins_with_samples(self.path)):
            self._write(probe_event(self._probe.samples))
        self._write(probe_event(predictions))

    def _line(self, fields: Mapping[str, Any]) -> str:
        plain = {key: _listed(value) if isinstance(value, np.ndarray) else value for key, value in fields.items()}
        return super()._line(plain)


def weights_event(statistics: WeightStatistics, state: EpochEnd) -> dict[str, Any]:
    """Return statistics of the weights at the end of an epoch as JSON data."""
    arrays = [one.describe() for one in statistics.of(state.params())]
    return {"event": "weights", "step": state.step, "epoch": state.epoch, "arrays": arrays}


def probe_event(of: ProbedSamples | ProbedPredictions) -> dict[str, Any]:
    """Return samples or predictions as plain data with arrays."""
    return {"event": of.event, **{f.name: getattr(of, f.name) for f in dataclasses.fields(of)}}


def _listed(array: Any) -> Any:
    """Return an array as lists; numbers that are not finite become None."""
    if array.dtype.kind != "f":
        return array.tolist()
    plain = np.empty(array.shape, object)
    plain.ravel()[:] = [float(f"{value:.9g}") if isfinite(value) else None for value in array.ravel().tolist()]
    return plain.tolist()


def _begins_with_samples(path: Any) -> bool:
    """Whether a resumed file has the samples already."""
    with path.open(encoding="utf-8") as file:
        return f'"{ProbedSamples.event}"' in file.read(40)
