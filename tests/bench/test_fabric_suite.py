"""The suite of fabrics: what it measures, and how it says so."""

from __future__ import annotations

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.suites.fabric import Sheet, run


def test_a_sheet_shares_its_weights_where_it_is_large() -> None:
    assert Sheet(16, 8).share == "none"
    assert Sheet(65, 1).share == "all"
    assert Sheet(4, 2).rows(3).shape == (2, 3, 32)


@pytest.mark.thorough
def test_the_suite_tells_of_each_role(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MANY", 8)
    monkeypatch.setattr(run, "ROWS", 4)
    monkeypatch.setattr(run, "LEARNED", 2)
    monkeypatch.setattr(run, "_BURST_SECONDS", 1e-3)
    command = ["fabric", "--device", "cpu", "--only", "3", "-b", "2", "-r", "2", "-o", "json"]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["role"] for row in rows] == ["run", "long", "update"]
    for row in rows:
        assert row["nodes"] == 9
        assert 0 < row["least"] <= row["rate"] <= row["most"]
        assert row["node_ns"] == pytest.approx(1e9 / (row["rate"] * 18))
        assert row["node_bytes"] > 0
    small = ["fabric", "--device", "cpu", "--only", "2"]
    assert main(small) == 2
