"""The examples of docs/networks.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(code, "docs/networks.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[0] == "parallel (-1, 2) 93"
