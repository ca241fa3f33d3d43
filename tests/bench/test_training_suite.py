"""The training benchmark trains what it says, and tells it in every format."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.suites.training import CASES, TrainingRow, measure_training, render_training
from tests.learners import reference_learner
from volumetric.base.errors import DeviceError, SpecError


def test_the_networks_are_the_published_ones() -> None:
    sizes = {
        name: sum(int(np.prod(spec.shape)) for spec in case.network.param_specs().values())
        for name, case in CASES.items()
    }
    assert sizes == {
        "dense": 128 * 512 + 512 * 512 + 512 * 8,
        "cnn1d": 3 * 32 * 3 + 32 * 64 * 3 + 8192 * 8,
        "cnn2d": 3 * 16 * 9 + 16 * 32 * 9 + 32768 * 8,
        "cnn3d": 2 * 8 * 27 + 4096 * 8,
        "rms_norm": 128 * 512 + 512 + 512 * 512 + 512 * 8,
        "deep": 128 * 512 + 3 * 512 * 512 + 512 * 8,
    }
    assert [case.batch for case in CASES.values()] == [64, 32, 16, 8, 64, 64]
    assert all(case.data()[0].shape == (8 * case.batch, *case.shape) for case in CASES.values())


@pytest.mark.thorough
def test_a_case_is_trained_from_the_same_weights_each_time() -> None:
    (row,) = measure_training([CASES["cnn3d"]], reference_learner, "reference", epochs=2, repetitions=2)
    (again,) = measure_training([CASES["cnn3d"]], reference_learner, "reference", epochs=2, repetitions=1)
    assert row.loss == again.loss
    assert row.least <= row.seconds <= row.most
    assert (row.torch, row.ratio) == (None, None)
    (longer,) = measure_training([CASES["cnn3d"]], reference_learner, "reference", epochs=6, repetitions=1)
    assert longer.loss < row.loss


@pytest.mark.thorough
def test_a_peer_that_does_not_run_is_named() -> None:
    for python in (Path("/no/such/python"), Path(sys.executable)):
        rows = measure_training(
            [CASES["cnn3d"]], reference_learner, "reference", epochs=1, repetitions=1, torch=(python, "no device", 1)
        )
        with pytest.raises(DeviceError, match=r"PyTorch: |cannot start"):
            list(rows)


ROW = TrainingRow(
    name="a", device="cpu", epochs=20, seconds=2.0, least=1.5, most=3.0, loss=0.25, torch=1.0, torch_loss=0.26
)


def test_rows_are_told_in_every_format() -> None:
    assert "| a | cpu | 20 | 2 (1.5–3) | 0.2500 | 1 | 0.26 | 0.5 |" in render_training([ROW], "md")
    assert json.loads(render_training([ROW], "json"))[0]["ratio"] == 0.5
    assert json.loads(render_training([ROW], "jsonl"))["torch"] == 1.0
    (line,) = csv.DictReader(io.StringIO(render_training([ROW], "csv")))
    assert (line["name"], line["ratio"]) == ("a", "0.5")
    with pytest.raises(SpecError):
        render_training([ROW], "xml")


@pytest.mark.thorough
def test_the_command_line_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["training", "--device", "reference", "-r", "1", "-o", "json"]
    assert main([*arguments, "--only", "cnn3d"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["epochs"]) == ("cnn3d", 20)
    assert main([*arguments, "--only", "cnn4d"]) == 2
    assert "there is no network 'cnn4d'" in capsys.readouterr().err
