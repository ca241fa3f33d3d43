"""The examples of docs/universal_loader.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "universal_loader.md").read_text(encoding="utf-8")


def test_the_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(code, "docs/universal_loader.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == ["(-1, 4)", "(5, 4)", "(1, 5)", "(2, 5)"]


def test_the_flags_exist(capsys: pytest.CaptureFixture[str]) -> None:
    from volumetric.cli import main

    assert main(["inspect", "--help"]) == 0
    text = capsys.readouterr().out
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL):
        for flag in re.findall(r"--[a-z-]+", block):
            assert flag in text
