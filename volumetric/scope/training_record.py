"""What a page shows of one training run, collected from its events in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.scope.epoch_log import EpochLog
from volumetric.scope.step_curves import Buckets, StepCurves
from volumetric.train.training_events import StepEvent
from volumetric.train.weight_statistics import BINS, MOST_ARRAYS

STATISTICS: Final = ("mean", "min", "max", "active")
"""Statistics of layers, and which part of a bucket each is."""
_PART: Final = {"mean": 2, "min": 0, "max": 1, "active": 2}
MOST_LAYERS: Final = 256
"""Layers with statistics at most, outputs and gradients counted apart."""
MOST_MARKS: Final = 50
"""Events of numbers that are not finite that are listed."""
_LAYER_POINTS: Final = 512
_TEXT: Final = 200


class TrainingRecord:
    """Curves, statistics of layers and weights, samples and events of one run.

    Parameters
    ----------
    name : name of the run on the page
    live : as the attribute

    Attributes
    ----------
    live : whether new points are stored for `changes`, which somebody asks for again and again
    settings : name of a setting → its value as text
    status : sentence about the run, such as why it ended
    running : whether it goes on
    notes : sentences about what cannot be shown
    samples : inputs ``[samples, …]``, targets and names of classes, or None
    decode : returns the text of token ids, if samples are texts
    shape : shape of a sample, if it is stored flat
    pictures : the samples as a page draws them, once they are asked for
    """

    def __init__(self, name: str, *, live: bool = False) -> None:
        self.name: str = name
        self.settings: dict[str, str] = {}
        self.status: str = ""
        self.running: bool = False
        self.notes: dict[str, None] = {}
        self.samples: dict[str, Any] | None = None
        self.decode: Callable[[Sequence[int]], str] | None = None
        self.shape: tuple[int, ...] = ()
        self.pictures: dict[str, Any] | None = None
        self.steps: StepCurves = StepCurves()
        self.epochs: StepCurves = StepCurves()
        self.layers: StepCurves = StepCurves(_LAYER_POINTS, MOST_LAYERS * len(STATISTICS))
        self.layer_names: dict[tuple[str, str, str], int] = {}
        self.weights: EpochLog = EpochLog()
        self.predictions: EpochLog = EpochLog()
        self.marks: list[dict[str, Any]] = []
        self.restarted: bool = False
        self.live: bool = live
        self._fresh: dict[str, list[Buckets]] = {}
        self._fresh_rows: dict[str, list[tuple[tuple[float, float, float], dict[str, float]]]] = {}
        self._newest: Array = np.zeros((3, 0))
        self._seconds = 0.0
        self._step = self._epoch = 0.0
        self._layer_step = -1
        self._layer_row: dict[str, float] = {}

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take an event as plain data.

        Raises
        ------
        ValueError, KeyError, TypeError : the data are not an event
        """
        if "mode" in fields and "where" in fields:
            self._layer(fields)
            return
        match fields["event"]:
            case "step":
                self._update(fields)
            case "epoch":
                self._end_epoch(fields)
            case "stop":
                self._stop(fields)
            case "weights":
                self._weights(fields)
            case "samples":
                self.samples, self.pictures = _samples(fields), None
            case "predictions":
                self.predictions.append(fields)
            case _:
                pass  # events of other kinds, such as targets of layers

    def add_updates(self, events: Sequence[StepEvent]) -> None:
        """Take the events of updates, in order: what `add` does, faster."""
        if not events:
            return
        columns = {
            "loss": np.array([event.loss for event in events]),
            "rate": np.array([event.rate for event in events]),
            "gradient_norm": np.array([event.gradient_norm for event in events]),
            "update_seconds": np.array([event.seconds for event in events]),
        }
        for name in events[-1].losses:
            columns[f"loss/{name}"] = np.array([event.losses.get(name, np.nan) for event in events])
        for name in ("loss", "gradient_norm"):
            for i in np.flatnonzero(~np.isfinite(columns[name]))[: MOST_MARKS + 1]:
                self._mark(events[i].step, f"{name.replace('_', ' ')} is {columns[name][i]}", name)
        seconds = self._seconds + np.cumsum(columns["update_seconds"])
        axes = np.array([[event.step for event in events], [event.epoch for event in events], seconds])
        self._step, self._epoch, self._seconds = (float(of) for of in axes[:, -1])
        self.running, self.status, self._newest = True, "", axes
        points = Buckets.of_columns(axes, columns)
        self.steps.extend(points)
        if self.live:
            self._fresh.setdefault("steps", []).append(points)

    def restart_after(self, step: int) -> None:
        """Forget what came after a step, because a resumed run repeats it."""
        for curves in (self.steps, self.epochs, self.layers):
            curves.clear_after(step)
        self.weights.clear_after(step)
        self.predictions.clear_after(step)
        self.marks = [mark for mark in self.marks if mark["step"] <= step]
        self._fresh, self._fresh_rows, self._layer_row, self._newest = {}, {}, {}, np.zeros((3, 0))
        self.restarted, self.status = True, ""

    def _append(self, kind: str, curves: StepCurves, axes: tuple[float, float, float], row: dict[str, float]) -> None:
        curves.append(axes, row)
        if self.live:
            self._fresh_rows.setdefault(kind, []).append((axes, row))

    def _update(self, fields: Mapping[str, Any]) -> None:
        step, epoch = _number(fields["step"]), _number(fields["epoch"])
        seconds = _number(fields.get("seconds", 0.0))
        row = {
            "loss": _number(fields["loss"]),
            "rate": _number(fields["rate"]),
            "gradient_norm": _number(fields["gradient_norm"]),
            "update_seconds": seconds,
        }
        if losses := fields.get("losses"):
            row |= {f"loss/{name}": value for name, value in _numbers(losses)}
        self._seconds += seconds if math.isfinite(seconds) else 0.0
        self._step, self._epoch, self.running, self.status = step, epoch, True, ""
        self._append("steps", self.steps, (step, epoch, self._seconds), row)
        for name in ("loss", "gradient_norm"):
            if not math.isfinite(row[name]):
                self._mark(step, f"{name.replace('_', ' ')} is {row[name]}", name)

    def _end_epoch(self, fields: Mapping[str, Any]) -> None:
        single = ("loss", "validation_loss", "metric", "accuracy")
        row = {name: _number(fields[name]) for name in single if fields.get(name) not in (None, "")}
        for kind, of in (("loss", "losses"), ("validation_loss", "validation_losses"), ("accuracy", "accuracies")):
            row |= {f"{kind}/{name}": value for name, value in _numbers(fields.get(of))}
        step, epoch = _number(fields["step"]), _number(fields["epoch"]) + 1
        self._step, self._epoch, self.running = max(step, self._step), epoch, True
        self._append("epochs", self.epochs, (step, epoch, self._seconds_at(step)), row)

    def _seconds_at(self, step: float) -> float:
        """Return the time after an update, which may have been taken together with later ones."""
        at = int(np.searchsorted(self._newest[0], step))
        return self._seconds if at >= self._newest.shape[1] else float(self._newest[2, at])

    def _stop(self, fields: Mapping[str, Any]) -> None:
        reason, step = str(fields["reason"])[:_TEXT], _number(fields["step"])
        where = str(fields.get("where") or "")[:_TEXT]
        self.running = False
        ends = {"epochs": "all epochs done", "max_steps": "the number of updates is reached",
                "patience": "the validation loss got no better", "interrupted": "interrupted"}  # fmt: skip
        self.status = ends.get(reason, reason)
        if reason == "diverged":
            self.status = f"diverged at step {step:,.0f}: {where or 'a number is not finite'}"
            self.marks.append({"step": step, "text": self.status, "name": "diverged"})

    def _mark(self, step: float, text: str, name: str) -> None:
        if len(self.marks) < MOST_MARKS:
            self.marks.append({"step": step, "text": f"step {step:,.0f}: {text}", "name": name})
        else:
            self.notes[f"more than {MOST_MARKS} numbers are not finite; the first ones are marked"] = None

    def _layer(self, fields: Mapping[str, Any]) -> None:
        step, mode = int(_number(fields["step"])), str(fields["mode"])[:20]
        where, kind = str(fields["where"])[:_TEXT], str(fields["kind"])[:_TEXT]
        stats = {name: _number(fields["stats"][name]) for name in STATISTICS}
        if step != self._layer_step:
            self.end_layers()
            self._layer_step = step
        name = (mode, where, kind)
        if name not in self.layer_names:
            if len(self.layer_names) >= MOST_LAYERS:
                self.notes[f"statistics of the first {MOST_LAYERS} layers are shown"] = None
                return
            self.layer_names[name] = len(self.layer_names)
        place = self.layer_names[name]
        self._layer_row |= {f"{place}/{name}": value for name, value in stats.items()}

    def end_layers(self) -> None:
        """Complete the statistics of an update, as all of its layers are there."""
        if self._layer_row:
            axes = (float(self._layer_step), self._epoch, self._seconds)
            self._append("layers", self.layers, axes, self._layer_row)
            self._layer_row = {}

    def _weights(self, fields: Mapping[str, Any]) -> None:
        arrays = list(fields["arrays"])[:MOST_ARRAYS]
        numbers = {
            name: np.array([math.nan if one.get(name) is None else _number(one[name]) for one in arrays])
            for name in ("norm", "change", "low", "high")
        }
        step, epoch = _number(fields["step"]), _number(fields["epoch"])
        entry = {
            "step": step,
            "epoch": epoch,
            "keys": [str(one["key"])[:_TEXT] for one in arrays],
            "shapes": [[int(size) for size in one["shape"]] for one in arrays],
            **numbers,
            "counts": _counts([one["counts"] for one in arrays]),
        }
        self.weights.append(entry)
        odd = [key for key, one in zip(entry["keys"], arrays, strict=True) if int(one.get("odd", 0))]
        if odd:
            self._mark(step, f"weights are not finite: {', '.join(odd[:3])}", "weights")

    def changes(self) -> dict[str, Any] | None:
        """Return the points since the last call, or None if there is nothing new."""
        fresh, self._fresh = self._fresh, {}
        rows, self._fresh_rows = self._fresh_rows, {}
        for kind, points in rows.items():
            names = dict.fromkeys(name for _, row in points for name in row)
            of = Buckets.of_rows([axes for axes, _ in points], [row for _, row in points], names)
            fresh.setdefault(kind, []).append(of)
        changed: dict[str, Any] = {}
        for kind, points in fresh.items():
            buckets = Buckets.concatenated(points)
            buckets = buckets.merged(-(-len(buckets) // 256))
            changed[kind] = self.layer_tables(buckets) if kind == "layers" else buckets.tables()
        return changed or None

    def layer_tables(self, buckets: Buckets) -> dict[str, Any]:
        """Return statistics of layers as arrays ``[layers, points]``."""
        shape = (len(self.layer_names), len(buckets))
        tables: dict[str, Any] = {}
        for name in STATISTICS:
            table = np.full(shape, np.nan, np.float32)
            for i in range(shape[0]):
                values = buckets.values.get(f"{i}/{name}")
                if values is not None:
                    with np.errstate(over="ignore"):
                        table[i] = values[_PART[name]]
            tables[name] = table
        names = [{"mode": mode, "where": where, "kind": kind} for mode, where, kind in self.layer_names]
        known = self.steps.buckets().axes  # files of layers tell the step alone
        axes = {"step": buckets.axes[0].astype(np.float32)}
        for i, name in ((1, "epoch"), (2, "seconds")):
            of = np.interp(buckets.axes[0], known[0], known[i]) if known.shape[1] else buckets.axes[i]
            axes[name] = of.astype(np.float32)
        return {"names": names, **axes, "values": tables}


def _number(value: Any) -> float:
    """Return a number of an event, which may be text if it is not finite."""
    if type(value) is float and -1e300 < value < 1e300:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str, np.number)):
        raise TypeError(f"{value!r:.40} is not a number")
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) >= 1e300 else number


def _numbers(values: Any) -> list[tuple[str, float]]:
    """Return the numbers of a table by name; CSV holds it as JSON text."""
    return [(str(name)[:_TEXT], _number(value)) for name, value in dict(values or {}).items()]


def _counts(values: Any) -> Array:
    counts = np.asarray(values, np.float64)
    if counts.shape[1:] != (BINS,) or not np.isfinite(counts).all() or (counts < 0).any():
        raise ValueError(f"a histogram has {BINS} counts")
    return counts


def _samples(fields: Mapping[str, Any]) -> dict[str, Any]:
    inputs, targets = (np.asarray(fields[name]) for name in ("inputs", "targets"))
    if not 1 <= len(inputs) <= 24 or len(targets) != len(inputs) or "O" in (inputs.dtype.kind, targets.dtype.kind):
        raise ValueError("samples and targets do not match")
    if inputs.dtype.kind not in "fiub" or targets.dtype.kind not in "fiub" or inputs.size > 24 << 16:
        raise ValueError("samples are not numbers, or too many")
    return {
        "inputs": inputs,
        "targets": targets,
        "classed": bool(fields["classed"]),
        "classes": [str(name)[:60] for name in list(fields.get("classes") or ())[:64]],
        "output": str(fields.get("output", ""))[:_TEXT],
        "held_out": bool(fields.get("held_out")),
    }
