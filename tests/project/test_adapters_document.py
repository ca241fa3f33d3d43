"""docs/adapters.md: its examples run, and what it says is printed is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "reference")
    exec(compile(code.replace('"tests/', f'"{ROOT}/tests/'), "adapters.md", "exec"), {})
    told = re.findall(r"^print\(.*\)(?:  # (.*))?$", code, re.MULTILINE)
    printed = capsys.readouterr().out.splitlines()
    assert [line for line, said in zip(printed, told, strict=True) if said] == [said for said in told if said]
    assert (tmp_path / "merged" / "network.json").is_file()
