"""One training run: training, evaluation, saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from volumetric.base import reporting
from volumetric.base.errors import UnsupportedError
from volumetric.cli import console
from volumetric.cli.interrupts import stop_on_interrupt
from volumetric.cli.training_open import OpenedRun
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.native_checkpoint import save_native
from volumetric.loaders.peft import save_adapter
from volumetric.observe import HttpObserver, JsonlObserver, LogObserver, Observer
from volumetric.train import (
    CsvReporter,
    Evaluation,
    JsonlReporter,
    LowRank,
    Reporter,
    TrainResult,
    evaluate,
    save_overlays,
    train,
)
from volumetric.train.epoch_files import SampleReporter, WeightReporter
from volumetric.train.settings import RunSettings
from volumetric.train.tensorboard import TensorBoardReporter


def reporters_of(run: RunSettings) -> list[Reporter]:
    """Return the reporters that write the history."""
    home, history = run.directory, run.history
    reporters: list[tuple[bool, Reporter]] = [
        (history.jsonl, JsonlReporter(home / "history.jsonl")),
        (history.csv, CsvReporter(home / "history.csv")),
        (history.tensorboard, TensorBoardReporter(home / "tensorboard")),
        (history.weights, WeightReporter(home / "weights.jsonl")),
        (history.samples > 0, SampleReporter(home / "samples.jsonl", max(1, history.samples))),
    ]
    return [reporter for chosen, reporter in reporters if chosen] + reporting.reporters_of(run.reporters)


@contextmanager
def observers_of(run: RunSettings) -> Iterator[list[Observer]]:
    """Open the observers of the settings, and close them at the end."""
    settings = run.observe
    observers: list[Observer] = []
    try:
        if settings.log:
            observers.append(LogObserver(settings.every))
        if settings.jsonl:
            observers.append(JsonlObserver(run.directory / "layers.jsonl", settings.every))
        if settings.http >= 0:
            server = HttpObserver(settings.http, window=settings.window)
            observers.append(server)
            console.note(f"statistics of the layers: {server.address}")
        yield observers
    finally:
        for observer in observers:
            observer.close()


def train_opened(run: RunSettings, opened: OpenedRun, reporters: Sequence[Reporter]) -> TrainResult:
    """Train until the end, or until Ctrl-C, and save the model."""
    home = run.directory
    with observers_of(run) as observers, stop_on_interrupt("this update") as stop:
        result = train(
            opened.subject,
            opened.params,
            opened.samples.data,
            opened.config,
            validation=opened.samples.validation,
            reporters=[*reporters_of(run), *reporters],
            checkpoints=run.checkpoints,
            resume=run.resume,
            device=run.device,
            observers=observers,
            stop=stop.is_set,
        )
    save_native(
        home / "model",
        opened.network,
        result.best,
        facts=opened.facts,
        files=opened.files,
        clocked=opened.machine or (None if opened.model is None else opened.model.clocked),
    )
    if opened.config.overlay is not None:
        save_overlays(home / "overlays.npz", opened.config.overlay, result.overlays)
        if opened.model is not None and opened.model.config:
            _save_adapter(home / "adapter", opened.model, opened.config.overlay, result)
    return result


def _save_adapter(home: Path, model: LoadedModel, overlay: LowRank, result: TrainResult) -> None:
    """Also save the overlays as a PEFT adapter, if PEFT supports all of them."""
    try:
        save_adapter(home, model, result.overlays, rank=overlay.rank, alpha=overlay.alpha)
    except UnsupportedError as error:
        console.note(f"the overlays cannot be saved as a PEFT adapter: {error}")


def judge(run: RunSettings, opened: OpenedRun, result: TrainResult) -> Evaluation | None:
    """Evaluate the saved weights on the held-out samples, else on all; None without classes."""
    if not opened.samples.classed:
        return None
    data = opened.samples.validation or opened.samples.data
    return evaluate(opened.subject, result.best, data, opened.config, device=run.device)


def summary(run: RunSettings, opened: OpenedRun, result: TrainResult, judged: Evaluation | None) -> dict[str, Any]:
    """Return the summary of a run, as JSON data."""
    last = result.history[-1] if result.history else None
    validation_losses = [e.validation_loss for e in result.history if e.validation_loss is not None]
    several = {} if last is None or not last.losses else {"losses": last.losses}
    if judged is not None and judged.accuracies:
        several["accuracies"] = judged.accuracies
    return {
        "reason": result.reason,
        "updates": result.steps,
        "epochs": len(result.history),
        "loss": None if last is None else last.loss,
        "validation_loss": min(validation_losses, default=None),
        "accuracy": None if judged is None else judged.accuracy,
        "parameters": sum(int(np.prod(store.shape)) for store in result.params.values()),
        "model": str(run.directory / "model"),
        **several,
    }
