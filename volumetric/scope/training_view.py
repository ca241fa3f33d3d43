"""The view of training runs: curves, layers, weights, samples, and settings, of several runs together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.scope.document import ScopeView
from volumetric.scope.epoch_log import CAPACITY, EpochLog
from volumetric.scope.sample_pictures import sample_pictures
from volumetric.scope.training_files import read_run
from volumetric.scope.training_record import TrainingRecord
from volumetric.scope.training_settings import network_text
from volumetric.train.train_result import TrainResult
from volumetric.train.training_events import EpochEvent

MOST_RUNS: Final = 16
"""Runs of a page at most."""
_CURVE_NUMBERS: Final = 400_000
_LAYER_NUMBERS: Final = 120_000
_HISTOGRAMS: Final = 16_000
_PREDICTIONS: Final = 200_000

Source: TypeAlias = "str | os.PathLike[str] | TrainResult | TrainingRecord"
"""Where a run comes from: a directory or a file of its history, or a result."""


def training_view(
    *sources: Source, names: Sequence[str] | None = None, name: str = "training", label: str = "Training"
) -> ScopeView:
    """Return the view of one or several training runs.

    Parameters
    ----------
    sources : directories of ``volumetric train``, files ``history.jsonl``, ``history.csv`` or ``layers.jsonl``, results
        of `train`, or records of a `TrainingWatch`
    names : names of the runs; by default those of directories, and ``run 1``, … for results

    Raises
    ------
    SpecError : there are no runs, more than 16, as many names as runs are not passed, or a source has no training run
    CheckpointError : nothing of a directory can be read

    Examples
    --------
    >>> training_view("spirals", "spirals-2")  # doctest: +SKIP
    >>> training_view(result, names=["lr 0.02"])  # doctest: +SKIP
    """
    return view_of(records_of(sources, names), name=name, label=label)


def records_of(sources: Sequence[Source], names: Sequence[str] | None = None) -> list[TrainingRecord]:
    """Return the record of each source; see `training_view`."""
    check_runs(len(sources), names)
    used = unique_names(sources, names)
    return [record_of(source, used[i]) for i, source in enumerate(sources)]


def check_runs(count: int, names: Sequence[str] | None) -> None:
    """Raise `SpecError` unless there are runs, not too many, and a name for each if there are names."""
    if not 1 <= count <= MOST_RUNS:
        raise SpecError(f"a page shows 1 … {MOST_RUNS} runs, got {count}", hint="choose some of them")
    if names is not None and len(names) != count:
        raise SpecError(f"got {len(names)} names for {count} runs")


def unique_names(sources: Sequence[Source], names: Sequence[str] | None) -> list[str]:
    """Return different names of runs: those passed, else of directories, with a number where two are equal."""
    chosen: list[str] = []
    for i, source in enumerate(sources):
        match source:
            case TrainingRecord():
                own = source.name
            case str() | os.PathLike():
                path = Path(source).absolute()
                own = path.name if path.is_dir() else path.parent.name
            case _:
                own = f"run {i + 1}"
        wanted = (own if names is None else str(names[i]))[:80] or f"run {i + 1}"
        chosen.append(wanted if wanted not in chosen else f"{wanted} ({i + 1})")
    return chosen


def record_of(source: Source, name: str) -> TrainingRecord:
    """Return the record of a source under a name; see `training_view`."""
    match source:
        case TrainingRecord():
            source.name = name
            return source
        case TrainResult():
            return _of_result(source, name)
        case str() | os.PathLike():
            return read_run(source, name)
        case _:
            raise SpecError(
                f"{type(source).__name__} is no training run",
                hint="pass a directory of volumetric train, or what train returned",
            )


def _of_result(result: TrainResult, name: str) -> TrainingRecord:
    """Return the epochs of a result; updates are not part of it."""
    from volumetric.base.reporting import event_fields

    record = TrainingRecord(name)
    for event in result.history:
        record.add(event_fields(event))
    last: EpochEvent | None = result.history[-1] if result.history else None
    record.add({"event": "stop", "step": result.steps, "epoch": 0 if last is None else last.epoch,
                "reason": result.reason})  # fmt: skip
    structure = getattr(result.network, "network", result.network)
    record.settings = {"network": network_text(structure.to_json()), "device": str(result.device)}
    return record


def view_of(records: Sequence[TrainingRecord], *, name: str = "training", label: str = "Training") -> ScopeView:
    """Return the view of records as they are now."""
    return ScopeView(kind="training", name=name, label=label, data=training_data(records))


def training_data(records: Sequence[TrainingRecord]) -> dict[str, Any]:
    """Return the data of the view: arrays of each run, in a size that is bounded for all runs together."""
    curve_width = sum(8 + 3 * (len(of.steps.names) + len(of.epochs.names)) for of in records)
    layer_width = sum(3 + 4 * len(of.layer_names) for of in records)
    array_count = sum(len(_keys(of.weights)) for of in records)
    cell_count = sum(_prediction_cells(of) for of in records)
    inputs: list[dict[str, Any]] = []
    known: dict[bytes, int] = {}
    runs = [
        {
            "name": record.name,
            "status": record.status,
            "running": record.running,
            "settings": record.settings,
            "notes": [*record.notes],
            "marks": record.marks,
            "steps": record.steps.buckets(_CURVE_NUMBERS // max(1, curve_width)).tables(),
            "epochs": record.epochs.buckets(_CURVE_NUMBERS // max(1, curve_width)).tables(),
            "layers": _layers(record, _LAYER_NUMBERS // max(1, layer_width)),
            "weights": weight_tables(record.weights, _HISTOGRAMS // max(1, array_count)),
            "samples": sample_tables(record, inputs, known, _PREDICTIONS // max(1, cell_count)),
        }
        for record in records
    ]
    return {"runs": runs, "inputs": inputs}


def _layers(record: TrainingRecord, most: int) -> dict[str, Any] | None:
    if not record.layer_names:
        return None
    return record.layer_tables(record.layers.buckets(max(8, most)))


def _keys(log: EpochLog) -> list[str]:
    return log.entries[-1]["keys"] if log.entries else []


def weight_tables(log: EpochLog, most: int = _HISTOGRAMS) -> dict[str, Any] | None:
    """Return the statistics of weights as arrays ``[epochs, arrays]``, and shares of bins as uint16."""
    if not log.entries:
        return None
    last = log.entries[-1]
    entries = [entry for entry in log.thinned(max(2, most)) if entry["keys"] == last["keys"]]
    counts = np.stack([entry["counts"] for entry in entries])
    with np.errstate(over="ignore"):
        numbers = {
            name: np.stack([entry[name] for entry in entries]).astype(np.float32)
            for name in ("norm", "change", "low", "high")
        }
    return {
        "keys": last["keys"],
        "shapes": last["shapes"],
        "step": np.array([entry["step"] for entry in entries], np.float32),
        "epoch": np.array([entry["epoch"] for entry in entries], np.float32),
        **numbers,
        "shares": np.rint(65535 * counts / np.maximum(1, counts.sum(-1, keepdims=True))).astype(np.uint16),
    }


def _prediction_cells(record: TrainingRecord) -> int:
    if not record.predictions.entries:
        return 0
    last = record.predictions.entries[-1]
    parts = (last.get(name) for name in ("predictions", "outputs", "confusion"))
    return sum(0 if part is None else np.size(part) for part in parts)


def sample_tables(
    record: TrainingRecord,
    inputs: list[dict[str, Any]],
    known: dict[bytes, int] | None = None,
    most: int = CAPACITY,
) -> dict[str, Any] | None:
    """Return samples with their predictions; their pictures are added to `inputs`, once for runs with equal samples."""
    known = {} if known is None else known
    samples = record.samples
    if samples is None or not record.predictions.entries:
        return None
    numbers = samples["inputs"]
    numbers = numbers.astype(np.float32) if numbers.dtype.kind == "f" else numbers  # in files they are text
    text = numbers.tobytes() + str((numbers.shape, record.shape)).encode()
    if text not in known:
        known[text] = len(inputs)
        record.pictures = record.pictures or sample_pictures(samples["inputs"], record.decode, record.shape)
        inputs.append(record.pictures)
    targets = samples["targets"]
    entries = [entry for entry in record.predictions.thinned(max(2, most)) if _fits(entry, targets)]
    decoded = record.decode is not None and samples["classed"] and targets.ndim == 2
    predictions = [np.asarray(entry["predictions"]) for entry in entries]
    outputs = [entry.get("outputs") for entry in entries]
    confusion = [entry.get("confusion") for entry in entries]
    kind = np.int32 if samples["classed"] else np.float32
    return {
        "inputs": known[text],
        **{key: samples[key] for key in ("classed", "classes", "output", "held_out")},
        "targets": targets.astype(kind),
        "targetTexts": [record.decode(row.tolist()) for row in targets] if decoded and record.decode else None,
        "step": np.array([entry["step"] for entry in entries], np.float32),
        "epoch": np.array([entry["epoch"] for entry in entries], np.float32),
        "predictions": _stacked(predictions, kind),
        "predictionTexts": [[record.decode(row.tolist()) for row in of] for of in predictions]
        if decoded and record.decode
        else None,
        "outputs": _stacked(outputs, np.float16),
        "confusion": _stacked(confusion, np.uint16),
        "judged": [int(entry.get("judged", 0)) for entry in entries],
    }


def _fits(entry: Any, targets: Any) -> bool:
    return np.shape(entry["predictions"]) == targets.shape


def _stacked(arrays: Sequence[Any], kind: Any) -> Any:
    """Return arrays ``[epochs, …]``, or None unless all have one shape."""
    if not arrays or any(of is None for of in arrays) or len({np.shape(of) for of in arrays}) > 1:
        return None
    limits = np.finfo(kind) if np.issubdtype(kind, np.floating) else np.iinfo(kind)
    return np.nan_to_num(np.array(arrays, np.float64)).clip(float(limits.min), float(limits.max)).astype(kind)
