"""The suite of programs: what it measures, and how it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.suites.program import Canvas, measure_programs, run
from volumetric.base._typing import Array
from volumetric.devices.named_devices import open_device
from volumetric.network import initialise

RUNS = [(share, "run") for share in ("edge", "rule")]
ROLES = [*RUNS, ("edge", "clocked"), ("edge", "quiet"), ("edge", "update"), ("rule", "update")]


class Peer:
    """Computes a row as the package does, from what it is given."""

    def give(self, layer: dict[str, Any], arrays: dict[str, Array]) -> None:
        assert layer["edges"] == [[0, 1], [1, 0]]
        self.arrays, self.edges = arrays, layer["edges"]

    def times(self, role: str) -> tuple[float, float]:
        return {"forward": (0.5, 0.25), "train": (8.0, 4.0)}[role]

    def repeat(self, count: int) -> Array:
        canvas = self.arrays["x"]
        for _ in range(count):
            canvas = np.concatenate([self.arrays["p/put"], canvas[:, 64:]], 1)
            made = [self._attend(canvas, *edge) for edge in self.edges]  # each region has one writer
            canvas = np.concatenate(made, 1)
        return canvas

    def _attend(self, canvas: Array, writes: int, reads: int) -> Array:
        def project(name: str, x: Array) -> Array:
            return x @ self.arrays[f"p/{name}.weight"].T + self.arrays[f"p/{name}.bias"]

        mine, other = (canvas[:, 64 * n : 64 * n + 64] for n in (writes, reads))
        q, k, v = (
            project(name, x).reshape(1, 64, 4, 16).transpose(0, 2, 1, 3)
            for name, x in (("q", mine), ("k", other), ("v", other))
        )
        weights = np.exp(q @ k.transpose(0, 1, 3, 2) / 4)
        heads = (weights / weights.sum(-1, keepdims=True)) @ v
        return project("o", heads.transpose(0, 2, 1, 3).reshape(1, 64, 64))


def test_regions_read_others() -> None:
    canvas = Canvas(9, 2)
    assert [sum(writes == n for writes, _ in canvas.edges) for n in range(9)] == [4] * 9
    assert all(writes != reads for writes, reads in canvas.edges)
    assert len(set(canvas.edges)) == 36
    assert canvas.rows(3).shape == (2, 3, 64)


@pytest.mark.thorough
def test_what_is_measured_beside_the_package_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROWS", 4)
    monkeypatch.setattr(run, "_BURST_SECONDS", 1e-3)
    peer: Any = Peer()
    rows = list(measure_programs([Canvas(2)], open_device("cpu"), repetitions=1, peer=peer))
    assert [(row.share, row.role) for row in rows] == ROLES
    assert [row.peer for row in rows] == [2, 2, None, None, 0.5, 0.5]
    assert [row.peer_busy for row in rows] == [4, 4, None, None, 1, 1]
    assert rows[1].apart is not None
    assert rows[1].apart < 1e-5
    assert [row.of_firing is None for row in rows] == [True, True, True, False, True, True]
    assert all(row.least <= row.rate <= row.most for row in rows)


def test_a_clock_that_looks_at_its_meter_fires_at_each_row_or_at_none() -> None:
    canvas = Canvas(2)
    device: Any = open_device("reference")
    made = {}
    for fires in ("always", "clocked", "never"):
        network = canvas.program("edge", fires).network()
        made[fires] = device.stream(network, initialise(network), batch=1).run(canvas.rows(3))
    assert np.array_equal(made["always"], made["clocked"])
    assert np.ptp(made["never"], axis=1).max() == 0 < np.ptp(made["clocked"], axis=1).max()


@pytest.mark.thorough
def test_the_command_tells_of_each_role(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROWS", 4)
    monkeypatch.setattr(run, "_BURST_SECONDS", 1e-3)
    command = ["program", "--device", "cpu", "--only", "2", "-r", "1", "-o"]
    assert main([*command, "md"]) == 0
    assert capsys.readouterr().out.count("\n") == 2 + len(ROLES)
    assert main([*command[:5], "--only", "1"]) == 2
