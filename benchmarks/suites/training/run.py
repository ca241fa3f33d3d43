"""Measure training: whole runs of some epochs, ours and PyTorch's, from the same weights and samples."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suites.training.cases import BATCHES, RATE, TrainingCase
from benchmarks.timing import median
from benchmarks.workers import run_once
from volumetric.base import rng
from volumetric.bench.bench_tables import render_table
from volumetric.layers import Dense, Reshape, RMSNorm
from volumetric.layers.conv import Conv
from volumetric.network import Params
from volumetric.network.weight_store import WeightStore
from volumetric.train import MSE, SGD, ArrayData, Learner, LearnerOptions, OpenLearner, Tally
from volumetric.train.learner import Compute, SeriesLearner
from volumetric.train.picked_batch import picked_batches

WORKER = "suites/training/torch_worker.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One network.

    Attributes
    ----------
    seconds, least, most : median and extremes of whole runs
    loss : of the last epoch
    torch, torch_loss : median seconds and loss of PyTorch, or None without it
    recorded : median seconds of PyTorch with whole epochs in a CUDA graph, or None without CUDA
    """

    name: str
    device: str
    epochs: int
    seconds: float
    least: float
    most: float
    loss: float
    torch: float | None = None
    torch_loss: float | None = None
    recorded: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as PyTorch."""
        return None if self.torch is None else self.torch / self.seconds

    @property
    def recorded_ratio(self) -> float | None:
        """How many times as fast as its CUDA graph."""
        return None if self.recorded is None else self.recorded / self.seconds

    def values(self) -> dict[str, Any]:
        """Return all that it says, for files."""
        return {**asdict(self), "ratio": self.ratio, "recorded_ratio": self.recorded_ratio}


def measure_training(
    cases: Sequence[TrainingCase],
    learner: OpenLearner,
    device: str,
    *,
    epochs: int = 20,
    repetitions: int = 3,
    torch: tuple[Path, str, int] | None = None,
    compute: Compute = "float32",
) -> Iterator[TrainingRow]:
    """Yield a row for each case. A first epoch, in which kernels are compiled, is not counted.

    Parameters
    ----------
    device : its name, for the rows
    torch : interpreter with PyTorch, ``"cpu"`` or ``"cuda"``, and CPU threads; it trains in float32
    compute : of our products

    Raises
    ------
    DeviceError
        PyTorch was asked for and does not run.
    """
    for case in cases:
        params = _weights(case)
        x, y = case.data()
        data = ArrayData(inputs=x, targets=y, batch_size=case.batch, shuffle=False)
        opened = learner(case.network, params, LearnerOptions(loss=MSE(), optimiser=SGD(lr=RATE), compute=compute))
        start = opened.state
        _run(data, opened, 1)
        times: list[float] = []
        loss = 0.0
        for _ in range(repetitions):
            opened.restore(start)
            began = time.perf_counter()
            loss = _run(data, opened, epochs)
            times.append(time.perf_counter() - began)
        theirs = None if torch is None else _torch(case, params, epochs, repetitions, *torch)
        yield TrainingRow(
            name=case.name,
            device=device,
            epochs=epochs,
            seconds=statistics.median(times),
            least=min(times),
            most=max(times),
            loss=loss,
            torch=None if theirs is None else statistics.median(theirs["seconds"]),
            torch_loss=None if theirs is None else theirs["loss"],
            recorded=None if theirs is None else median(theirs.get("recorded_seconds", ())),
        )


def _weights(case: TrainingCase) -> Params:
    """Return weights uniform in ±0.1, gains of one."""
    stores: dict[str, WeightStore] = {}
    for i, (key, spec) in enumerate(case.network.param_specs().items()):
        drawn = rng.generator(7, i).uniform(-0.1, 0.1, spec.shape)
        stores[key] = WeightStore.from_array((np.ones(spec.shape) if spec.init == "ones" else drawn).astype(np.float32))
    return Params(stores)


def _run(data: ArrayData, learner: Learner, epochs: int) -> float:
    """Make all updates; return the mean loss of the last epoch. As in `train`, losses are read after each epoch."""
    tallies: list[Tally] = []
    for epoch in range(epochs):
        picks = list(picked_batches(data, epoch))
        if isinstance(learner, SeriesLearner):
            tallies = [report.tally for report in learner.steps(picks, rates=[RATE] * len(picks))]
        else:
            tallies = [learner.step([batch.batch()], rate=RATE).tally for batch in picks]
    return sum(tally.total for tally in tallies) / sum(tally.count for tally in tallies)


def _torch(
    case: TrainingCase, params: Params, epochs: int, repetitions: int, python: Path, device: str, threads: int
) -> dict[str, Any]:
    x, y = case.data()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "case.npz"
        weights = {key: store.values() for key, store in params.items()}
        np.savez(path, allow_pickle=False, x=x, y=y, **weights)
        request = {
            "layers": list(_described(case)),
            "arrays": str(path),
            "epochs": epochs,
            "repetitions": repetitions,
            "batches": BATCHES,
            "rate": RATE,
            "device": device,
            "threads": threads,
        }
        missing = "pip install torch, or leave --torch-python out"
        return json.loads(run_once(python, WORKER, json.dumps(request), name="PyTorch", missing=missing))


def _described(case: TrainingCase) -> Iterator[dict[str, Any]]:
    """Yield the layers as the worker reads them: what to do, with which weight."""
    for coord, spec in case.network.layers.items():
        if isinstance(spec, Reshape):
            yield {"do": "flatten"}
        elif isinstance(spec, RMSNorm):
            yield {"do": "rms_norm", "weight": f"{coord}/weight", "eps": spec.eps}
        elif isinstance(spec, (Dense, Conv)):
            do = "dense" if isinstance(spec, Dense) else spec.kind
            yield {"do": do, "weight": f"{coord}/weight", "relu": spec.activation == "relu"}


_HEAD = "network | device | epochs | s (least–most) | loss | torch s | torch loss | times torch | graph s | times graph"


def render_training(rows: Sequence[TrainingRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        times = f"{row.seconds:.3g} ({row.least:.3g}–{row.most:.3g})"
        others = (row.torch, row.torch_loss, row.ratio, row.recorded, row.recorded_ratio)
        theirs = ["-" if value is None else f"{value:.3g}" for value in others]
        cells.append([row.name, row.device, str(row.epochs), times, f"{row.loss:.4f}", *theirs])
    return render_table([row.values() for row in rows], _HEAD, cells, form, left=2)
