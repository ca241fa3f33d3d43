"""Checkpoints: resuming gives the same bits, killing leaves nothing broken, damage and other runs are told."""

from __future__ import annotations

import csv
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.networks import tiny_llama
from tests.train.problems import perceptron, waves
from volumetric.base.errors import CheckpointError
from volumetric.base.reporting import event_fields
from volumetric.network import Network, initialise
from volumetric.train import (
    SGD,
    AdamW,
    ArrayData,
    Cosine,
    CrossEntropy,
    CsvReporter,
    JsonlReporter,
    Momentum,
    Optimiser,
    RMSprop,
    TrainConfig,
    TrainResult,
    WarmUp,
    read_checkpoint,
    token_windows,
    train,
)

ROOT = Path(__file__).parents[2]
NETWORK = perceptron(4, 8, 1)


class InterruptError(Exception):
    """Stands for whatever ends a run from outside."""


class After:
    """Ends the run after so many updates."""

    def __init__(self, updates: int) -> None:
        self.left = updates

    def start(self, step: int, epoch: int) -> None:
        self.left -= step

    def report(self, event) -> None:
        self.left -= event.event == "step"
        if self.left <= 0:
            raise InterruptError

    def close(self) -> None:
        pass


class AfterEpoch(After):
    """Ends the run while it ends its first epoch: the newest checkpoint is that of the last update."""

    def __init__(self) -> None:
        super().__init__(1)

    def report(self, event) -> None:
        if event.event == "epoch":
            raise InterruptError


def assert_same(a: TrainResult, b: TrainResult) -> None:
    assert (a.steps, a.reason, a.history) == (b.steps, b.reason, b.history)
    for one, other in ((a.params, b.params), (a.best, b.best)):
        for key in one:
            assert one[key].master().tobytes() == other[key].master().tobytes(), key
            assert one[key].packed().payload.tobytes() == other[key].packed().payload.tobytes(), key


@pytest.mark.thorough
@pytest.mark.parametrize(
    "optimiser",
    [SGD(), Momentum(nesterov=True), RMSprop(momentum=0.5, centered=True), AdamW(lr=0.01)],
    ids=lambda optimiser: optimiser.kind,
)
@pytest.mark.parametrize("dtype", [None, "int4"])
def test_a_resumed_run_is_the_same_bit_for_bit(optimiser: Optimiser, dtype: str | None, tmp_path: Path) -> None:
    config = TrainConfig(
        optimiser=optimiser,
        schedule=WarmUp(steps=3, then=Cosine(steps=20)),
        clip=0.5,
        dtype=dtype,
        accumulate=2,
        epochs=4,
        patience=3,
        checkpoint_every=1,
    )

    def run(**options) -> TrainResult:
        return train(NETWORK, initialise(NETWORK, seed=1), waves(72, batch_size=8), config, validation=0.25, **options)

    whole = run()
    assert whole.steps == 4 * 4  # 54 samples: 7 batches, the last of 6 samples and alone in its update
    with pytest.raises(InterruptError):
        run(checkpoints=tmp_path, reporters=[After(3)])
    with pytest.raises(InterruptError):
        run(checkpoints=tmp_path, resume=True, reporters=[After(9)])
    assert_same(run(checkpoints=tmp_path, resume=True), whole)
    assert_same(run(checkpoints=tmp_path, resume=True), whole)  # nothing is left to do


def test_a_transformer_resumes_too(tmp_path: Path) -> None:
    network = tiny_llama(vocabulary=11, width=8, blocks=1, heads=2, kv_heads=1, head_dim=4)
    inputs, targets = token_windows(np.random.default_rng(0).integers(0, 11, 65), 8)
    data = ArrayData(inputs=inputs, targets=targets, batch_size=3)

    def run(**options) -> TrainResult:
        config = TrainConfig(loss=CrossEntropy(), epochs=2, checkpoint_every=2)
        return train(network, initialise(network), data, config, **options)

    with pytest.raises(InterruptError):
        run(checkpoints=tmp_path, reporters=[After(5)])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-0000000003.npz", "step-0000000004.npz"]
    assert_same(run(checkpoints=tmp_path, resume=True), run())


def test_more_epochs_continue_a_finished_run(tmp_path: Path) -> None:
    def run(epochs: int, **options) -> TrainResult:
        return train(NETWORK, initialise(NETWORK), waves(), TrainConfig(epochs=epochs), validation=0.25, **options)

    run(2, checkpoints=tmp_path)
    assert_same(run(5, checkpoints=tmp_path, resume=True), run(5))


def test_a_run_killed_between_its_last_update_and_its_end_ends_alike(tmp_path: Path) -> None:
    config = TrainConfig(epochs=9, max_steps=4, checkpoint_every=1)  # an epoch has four updates

    def run(**options) -> TrainResult:
        return train(NETWORK, initialise(NETWORK), waves(), config, **options)

    with pytest.raises(InterruptError):
        run(checkpoints=tmp_path, reporters=[AfterEpoch()])
    (checkpoint,) = [read_checkpoint(path) for path in tmp_path.glob("*4.npz")]
    assert (checkpoint.progress["epoch"], checkpoint.progress["batch"]) == (0, 4)
    assert_same(run(checkpoints=tmp_path, resume=True), run())


def test_other_frozen_weights_are_another_run(tmp_path: Path) -> None:
    config = TrainConfig(frozen=("0.*",))
    train(NETWORK, initialise(NETWORK, seed=1), waves(), config, checkpoints=tmp_path)
    with pytest.raises(CheckpointError, match=r"frozen 0.0.0.0/weight differ"):
        train(NETWORK, initialise(NETWORK, seed=2), waves(), config, checkpoints=tmp_path, resume=True)


def test_history_files_have_no_line_twice(tmp_path: Path) -> None:
    def run(folder: Path, last: int | None, **options) -> list[dict[str, object]]:
        reporters = [JsonlReporter(folder / "run.jsonl"), CsvReporter(folder / "run.csv")]
        config = TrainConfig(epochs=3, checkpoint_every=3)
        options |= {"reporters": [*reporters, *([] if last is None else [After(last)])]}
        if last is None:
            train(NETWORK, initialise(NETWORK), waves(), config, **options)
        else:
            with pytest.raises(InterruptError):
                train(NETWORK, initialise(NETWORK), waves(), config, **options)
        texts = [(folder / name).read_text().splitlines() for name in ("run.jsonl", "run.csv")]
        records = [*map(json.loads, texts[0]), *csv.DictReader(texts[1])]
        return [{name: value for name, value in fields.items() if name != "seconds"} for fields in records]

    whole = run(tmp_path / "whole", None)
    parted = tmp_path / "parted"
    run(parted, 5, checkpoints=parted / "run")  # lines of steps 4 and 5 are beyond the checkpoint of epoch 0
    with (parted / "run.jsonl").open("a") as file:
        file.write('{"event": "st')
    resumed = run(parted, None, checkpoints=parted / "run", resume=True)
    assert resumed == whole
    assert len(resumed) == 2 * (12 + 3 + 1)


def test_an_earlier_run_is_not_overwritten_and_another_not_continued(tmp_path: Path) -> None:
    config = TrainConfig(optimiser=SGD(lr=0.01))
    train(NETWORK, initialise(NETWORK), waves(), config, checkpoints=tmp_path)
    with pytest.raises(CheckpointError, match="has checkpoints of an earlier run"):
        train(NETWORK, initialise(NETWORK), waves(), config, checkpoints=tmp_path)
    others = {
        "config optimiser differ": (NETWORK, waves(), TrainConfig(optimiser=SGD(lr=0.02))),
        "data seed differ": (NETWORK, waves(seed=9), config),
        "data samples, data crc32 differ": (NETWORK, waves(65), config),
        "network differ": (perceptron(4, 9, 1), waves(), config),
    }
    for message, (network, data, settings) in others.items():
        with pytest.raises(CheckpointError, match=message):
            train(network, initialise(network), data, settings, checkpoints=tmp_path, resume=True)


def test_damage_is_told(tmp_path: Path) -> None:
    train(NETWORK, initialise(NETWORK), waves(), checkpoints=tmp_path)
    path = next(tmp_path.glob("*.npz"))
    whole = path.read_bytes()
    assert read_checkpoint(path).learner.updates == 4
    middle = whole.index(b"master/0.0.0.0/weight.npy") + 200
    damaged = [whole[: len(whole) // 2], b"", whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="cannot read checkpoint"):
            read_checkpoint(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(CheckpointError, match="cannot read checkpoint"):
        train(NETWORK, initialise(NETWORK), waves(), checkpoints=tmp_path, resume=True)


def endless(folder: str) -> None:
    """Train and write checkpoints at every update until killed."""
    config = TrainConfig(epochs=10**9, checkpoint_every=1)
    network, data = big(), waves(8, batch_size=2)
    train(network, initialise(network), data, config, checkpoints=folder, resume=True, device="cpu")


def big() -> Network:
    """Checkpoints of some hundred kilobytes, so that most kills hit a write."""
    return perceptron(4, 4096, 1)


@pytest.mark.thorough
def test_killing_never_leaves_a_broken_checkpoint(tmp_path: Path) -> None:
    code = f"from tests.train.test_checkpoint import endless; endless({str(tmp_path)!r})"
    rng, seen = np.random.default_rng(7), 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            wait_for_progress(tmp_path, seen)
            time.sleep(rng.uniform(0, 0.05))
        finally:
            process.kill()
            process.wait()
        paths = sorted(tmp_path.glob("step-*.npz"))
        updates = [read_checkpoint(path).learner.updates for path in paths]
        assert updates == [int(path.stem[5:]) for path in paths]
        assert updates[-1] > seen
        seen = updates[-1]
    network = big()
    config = TrainConfig(epochs=10**9, max_steps=seen + 1)
    data = waves(8, batch_size=2)
    resumed = train(network, initialise(network), data, config, checkpoints=tmp_path, resume=True, device="cpu")
    assert_same(resumed, train(network, initialise(network), data, config, device="cpu"))
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_file_that_is_no_history_is_told(tmp_path: Path) -> None:
    train(NETWORK, initialise(NETWORK), waves(), checkpoints=tmp_path / "run")
    for name, reporter in (("notes.jsonl", JsonlReporter), ("notes.csv", CsvReporter)):
        (tmp_path / name).write_text("one,two\nnot mine\n")
        with pytest.raises(CheckpointError, match="not a history file of this kind"):
            train(
                NETWORK,
                initialise(NETWORK),
                waves(),
                checkpoints=tmp_path / "run",
                resume=True,
                reporters=[reporter(tmp_path / name)],
            )
        assert (tmp_path / name).read_text() == "one,two\nnot mine\n"


def wait_for_progress(folder: Path, beyond: int) -> None:
    """Return once there is a checkpoint of a later update than `beyond`."""
    for _ in itertools.repeat(None, 3000):
        newest = max((int(path.stem[5:]) for path in folder.glob("step-*.npz")), default=0)
        if newest > beyond:
            return
        time.sleep(0.01)
    raise AssertionError("the training process wrote no checkpoint in 30 seconds")


def test_records_are_plain_json() -> None:
    from volumetric.train import StepEvent

    event = StepEvent(
        step=1, epoch=0, loss=float("inf"), rate=0.1, gradient_norm=float("nan"), clipped=False, seconds=1
    )
    assert event_fields(event)["loss"] == "inf"
    assert event_fields(event)["gradient_norm"] == "nan"
