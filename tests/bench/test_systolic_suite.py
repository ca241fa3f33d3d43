"""The benchmark of clocked networks measures what it says, and tells it in every format."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.suites.systolic import Cube, SystolicRow, measure_systolic, render_systolic
from volumetric.base.errors import SpecError
from volumetric.devices.named_devices import open_device


class Peer:
    """Notes what it is given and asked."""

    def __init__(self) -> None:
        self.given: dict[str, tuple[int, ...]] = {}
        self.asked: list[str] = []

    def give(self, layer: dict[str, str], arrays: dict[str, Any]) -> None:
        assert layer == {"kind": "clocked"}
        self.given = {name: array.shape for name, array in arrays.items()}

    def times(self, role: str) -> tuple[float, float]:
        self.asked.append(role)
        return 0.5, 0.25


@pytest.mark.thorough
def test_cubes_run_and_learn_beside_a_peer() -> None:
    peer: Any = Peer()
    run, update = measure_systolic([Cube(1, 2)], open_device("cpu"), repetitions=2, peer=peer)
    assert [(row.side, row.batch, row.role, row.device) for row in (run, update)] == [
        (1, 2, "run", "cpu"),
        (1, 2, "update", "cpu"),
    ]
    assert peer.given == {"x": (64, 2, 64), "gy": (64, 2, 64), "p/weight": (1, 64, 64), "p/bias": (1, 64)}
    assert peer.asked == ["forward", "train"] * 2
    assert run.least <= run.rate <= run.most
    assert run.gflops == pytest.approx(run.rate * 2 * 64 * 64 * 2 / 1e9)
    assert update.gflops == pytest.approx(3 * update.rate * 2 * 64 * 64 * 2 / 1e9)
    assert (run.share, run.peer, run.ratio) == (None, 128, run.rate / 128)
    assert update.share is not None
    assert 3 * update.least / run.most <= update.share <= 3 * update.most / run.least


ROW = SystolicRow(
    side=4,
    batch=16,
    role="update",
    device="cpu",
    rate=2000.0,
    least=1500.0,
    most=2500.0,
    busy=2100.0,
    gflops=50.0,
    share=0.8,
    peer=1e3,
)


def test_rows_are_told_in_every_format() -> None:
    told = "| 4³ | 16 | update | cpu | 2,000 (1,500–2,500) | 2,100 | 50.0 | 0.80 | 1,000 | 2.00 |"
    assert told in render_systolic([ROW], "md")
    assert json.loads(render_systolic([ROW], "json"))[0]["ratio"] == 2.0
    assert json.loads(render_systolic([ROW], "jsonl"))["share"] == 0.8
    (line,) = csv.DictReader(io.StringIO(render_systolic([ROW], "csv")))
    assert (line["side"], line["peer"]) == ("4", "1000.0")
    with pytest.raises(SpecError):
        render_systolic([ROW], "xml")


@pytest.mark.thorough
def test_the_command_line_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["systolic", "--device", "cpu", "-r", "1", "-o", "json"]
    assert main([*arguments, "--only", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["side"], row["role"]) for row in found] == [(1, "run"), (1, "update")]
    assert main([*arguments, "--only", "0"]) == 2
    assert "sides and streams of 1 or more" in capsys.readouterr().err
