"""The examples of docs/stacks.md run, one after the other, and its table of presets is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.pages import follow
from tests.project.test_network_document import DOCS
from volumetric.builders.presets import PRESETS


@pytest.mark.thorough
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/stacks.md", monkeypatch, replace={})
    kinds, written = capsys.readouterr().out.splitlines()
    assert kinds == "['dense', 'column', 'post_up_gated', 'layer_norm', 'dense']"
    assert len(written) == 12
    assert written in "the cat sat on the mat."


def test_the_table_is_that_of_the_presets() -> None:
    text = (DOCS / "stacks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \[?(\w+)", text, re.MULTILINE)
    assert rows == [(token, type(preset).__name__, type(preset.at(16)).__name__) for token, preset in PRESETS.items()]
