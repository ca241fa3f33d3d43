"""The examples of docs/onnx.md run, one after the other, and print what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import follow


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/onnx.md", monkeypatch, replace={})
    assert capsys.readouterr().out.splitlines() == ["{'float32': 98}", "(5, 2)"]
