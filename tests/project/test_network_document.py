"""The examples of docs/networks.md and docs/clocked.md run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.pages import follow

DOCS = Path(__file__).parents[2] / "docs"


def examples(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in examples("networks.md"):
        exec(compile(code, "docs/networks.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[0] == "parallel (-1, 2) 93"


@pytest.mark.thorough
def test_the_examples_of_clocked_networks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/clocked.md", monkeypatch, replace={})
    assert {path.name for path in Path().iterdir()} >= {"y.npz", "machine.state", "activity.html", "echo"}
