"""The examples of docs/stacks.md run, one after the other, and its table of presets is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.test_network_document import DOCS, examples
from volumetric.builders.presets import PRESETS
from volumetric.cli import main


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in examples("stacks.md"):
        exec(compile(code, "docs/stacks.md", "exec"), names)
    kinds, written = capsys.readouterr().out.splitlines()
    assert kinds == "['dense', 'column', 'post_up_gated', 'layer_norm', 'dense']"
    assert len(written) == 12
    assert written in "the cat sat on the mat."


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    [settings] = examples("stacks.md", "toml")
    Path(settings.partition("\n")[0].removeprefix("# ")).write_text(settings)
    Path("text.txt").write_text("the cat sat on the mat.\n" * 20)
    for line in "".join(examples("stacks.md", "sh")).splitlines():
        name, *arguments = re.findall(r'"[^"]*"|\S+', line)
        assert name == "volumetric"
        assert main([*(argument.strip('"') for argument in arguments), "--device", "cpu"]) == 0, line
    assert capsys.readouterr().out


def test_the_table_is_that_of_the_presets() -> None:
    text = (DOCS / "stacks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \[?(\w+)", text, re.MULTILINE)
    assert rows == [(token, type(preset).__name__, type(preset.at(16)).__name__) for token, preset in PRESETS.items()]
