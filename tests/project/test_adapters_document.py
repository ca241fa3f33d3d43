"""docs/adapters.md: its example runs, and what it says is printed is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "reference")
    exec(compile(code.replace('"tests/', f'"{ROOT}/tests/'), "adapters.md", "exec"), {})
    printed = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines()[: len(printed)] == printed
    assert (tmp_path / "merged" / "network.json").is_file()
