"""The benchmark of cells measures what it says, and tells it in every format."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.suites.stacks import CELLS, CellCase, StackRow, chosen, measure_stacks, render_stacks
from volumetric.base.errors import DeviceError, SpecError
from volumetric.devices.named_devices import open_device

CASE = CellCase(kind="causal_conv1d", batch=2, rows=40)
ROLES = [("forward", False), ("train", False), ("forward", True), ("train", True), ("decode", False)]


class Peer:
    """Notes what it is given and asked; it may lack the package."""

    def __init__(self, *, has_package: bool) -> None:
        self.has_package = has_package
        self.given: list[str] = []
        self.asked: list[str] = []

    def give(self, layer: dict[str, Any], arrays: dict[str, Any]) -> None:
        if layer["kind"] == "cortical" and not self.has_package:
            raise DeviceError("PyTorch: ValueError: No module named 'cortex'")
        self.given.append(layer["kind"])
        assert arrays["x"].shape == arrays["gy"].shape == (2, 40, 128)
        if self.has_package:
            assert np.array_equal(layer["resets"], CASE.resets())

    def times(self, role: str) -> tuple[float, float]:
        self.asked.append(role)
        return 0.5, 0.25


@pytest.mark.parametrize("has_package", [True, False])
def test_cells_are_timed_beside_a_peer(has_package: bool) -> None:
    peer: Any = Peer(has_package=has_package)
    rows = list(measure_stacks([CASE], open_device("cpu"), repetitions=1, peer=peer))
    assert [(row.role, row.resets) for row in rows] == ROLES
    names = ["forward", "train", "forward with resets", "train with resets", "decode"]
    assert peer.asked == (names if has_package else names[:2])
    assert peer.given == ["cortical" if has_package else "causal_conv1d"]
    assert [row.peer for row in rows] == ([160, 160, 160, 160, 2] if has_package else [160, 160, None, None, None])
    assert [row.peer_busy for row in rows] == [None if row.peer is None else 2 * row.peer for row in rows]
    assert [row.cost is None for row in rows] == [True, True, False, False, True]
    assert all(row.least <= row.rate <= row.most for row in rows)


def test_a_window_is_that_of_the_cell_with_its_gradients_and_resets() -> None:
    assert 0 < CASE.resets().sum() < CASE.resets().size / 4
    for role, count in (("forward", 1), ("train", 4)):
        for resets in (False, True):
            graph = CASE.graph(role, resets=resets)  # pyright: ignore[reportArgumentType]  (a tuple of literals)
            assert len(graph.outputs) == count
            assert ("resets" in graph.tensors_by_key) == resets
    with pytest.raises(SpecError, match="no cell is called"):
        chosen(["xlstm"])
    assert [case.kind for case in chosen(None)] == list(CELLS)


ROW = StackRow(
    cell="slstm",
    role="train",
    resets=True,
    device="cpu",
    rate=2000.0,
    least=1500.0,
    most=2500.0,
    busy=2100.0,
    cost=1.25,
    peer=1e3,
    peer_name="cortical",
)


def test_rows_are_told_in_every_format() -> None:
    told = "| slstm | train | yes | cpu | 2,000 (1,500–2,500) | 2,100 | 500.00 | 1.25 | cortical | 1,000 | 2.00 |"
    assert told in render_stacks([ROW], "md")
    alone = replace(ROW, peer=None, peer_name=None, cost=None)
    assert "| 500.00 | - | - | - | - |" in render_stacks([alone], "md")
    assert json.loads(render_stacks([ROW], "json"))[0]["ratio"] == 2.0
    (line,) = csv.DictReader(io.StringIO(render_stacks([ROW], "csv")))
    assert (line["cell"], line["peer"]) == ("slstm", "1000.0")


@pytest.mark.thorough
def test_the_command_line_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stacks", "--device", "cpu", "-r", "1", "-o", "json"]
    assert main([*arguments, "--only", "causal_conv1d"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["role"], row["resets"]) for row in found] == ROLES
    assert main([*arguments, "--only", "xlstm"]) == 1
    assert "no cell is called" in capsys.readouterr().err
