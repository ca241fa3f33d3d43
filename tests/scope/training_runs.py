"""Small runs of training for tests of the scope."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from volumetric.base.errors import VolumetricError
from volumetric.builders import cnn, sequential
from volumetric.observe import JsonlObserver
from volumetric.train import JsonlReporter, TrainResult, train
from volumetric.train.epoch_files import SampleReporter, WeightReporter
from volumetric.train.problems import PROBLEMS, Problem, spirals

SPIRALS = sequential(2, 3, hidden=(12, 12), activation="tanh")


@cache
def problem() -> Problem:
    """A small set of points on three arms."""
    return spirals(120)


def train_spirals(**more: Any) -> TrainResult:
    """Train a small network for a few epochs."""
    settings: dict[str, Any] = {
        "epochs": 4,
        "lr": 0.02,
        "loss": "cross_entropy",
        "validation": 0.25,
        "device": "reference",
    }
    return train(SPIRALS, problem().inputs, problem().targets, **{**settings, **more})


def write_run(home: Path, **more: Any) -> Path:
    """Train, and write all files of a run to a directory."""
    observer = JsonlObserver(home / "layers.jsonl", 2)
    try:
        train_spirals(
            reporters=[
                JsonlReporter(home / "history.jsonl"),
                WeightReporter(home / "weights.jsonl"),
                SampleReporter(home / "samples.jsonl", 12),
            ],
            observers=[observer],
            checkpoints=home / "checkpoints",
            **more,
        )
    finally:
        observer.close()
    return home


def write_diverged(home: Path) -> Path:
    """Write a run whose first update has a number that is not finite."""
    try:
        train_spirals(lr=3e38, optimiser="sgd", reporters=[JsonlReporter(home / "history.jsonl")])
    except VolumetricError:
        return home
    raise AssertionError("the run went well")


def train_digits(**more: Any) -> TrainResult:
    """Train a small convolutional network on pictures of digits."""
    digits = PROBLEMS["digits"]()
    network = cnn(shape=(1, 8, 8), channels=(4,), hidden=(16,), outputs=10)
    settings: dict[str, Any] = {"epochs": 3, "lr": 0.005, "loss": "cross_entropy", "validation": 0.2, **more}
    return train(network, digits.inputs.reshape(-1, 1, 8, 8), digits.targets, device="reference", **settings)
