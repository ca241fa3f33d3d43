"""The examples and commands of docs/onnx_read.md run, from the top down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.pages import ROOT, follow

DOCUMENT = "docs/onnx_read.md"


def test_the_examples_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VOLUMETRIC_DEVICE", "cpu")
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, DOCUMENT, "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == re.findall(r"print\(.*\)  # (.*)", text)


@pytest.mark.thorough
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/onnx_read.md", monkeypatch, replace={})
    assert (tmp_path / "small" / "network.json").is_file()
