"""docs/web_learning.md: its code runs, and its page evolves a problem of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.pages import ROOT

PAGE = (ROOT / "docs" / "web_learning.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_its_code_writes_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/web_learning.md", "exec"), names)
    shown = re.findall(r"```\n(\w+\n)```", PAGE)
    assert capsys.readouterr().out == "".join(shown)
    assert {path.name for path in tmp_path.iterdir()} == {"digits", "playground.html", "cart.html", "evolve.html"}
    assert {"index.html", "engine.js", "learner.js", "network.json"} <= {
        one.name for one in (tmp_path / "digits").iterdir()
    }
