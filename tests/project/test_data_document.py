"""The examples of docs/data.md and docs/export_code.md run, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import follow
from volumetric.loaders import open_model


def test_data_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names = follow("docs/data.md", monkeypatch, replace={})
    out = capsys.readouterr().out.splitlines()
    assert "(150, 2) ('small', 'tall', 'wide') ('height', 'width')" in out
    assert "['0.0.0.0/weight', '0.0.0.0/bias', '1.0.0.0/weight', '1.0.0.0/bias']" in out
    assert "(3, 8)" in out
    assert names["result"].loss < 0.4
    assert open_model(tmp_path / "leaves-net").features == ("height", "width")
    for model, classes in (
        ("leaves", ["small", "tall", "wide"]),
        ("tiles", ["blue", "red"]),
        ("tones", ["high", "low"]),
    ):
        assert [*open_model(tmp_path / model / "model").classes] == classes


def test_networks_as_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/export_code.md", monkeypatch, replace={})
    assert capsys.readouterr().out.splitlines() == ["1"]
    assert (tmp_path / "net.c").exists()
