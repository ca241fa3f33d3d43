"""The examples of docs/programs.md run, one after the other, and its lists are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import follow
from tests.project.test_network_document import DOCS
from volumetric.cli import main
from volumetric.program import Region
from volumetric.program.layer.name_checks import CARRIERS, OPERATORS, RULES

CANVAS = Path(__file__).parent.parent / "fixtures" / "programs" / "by_hand.json"


@pytest.mark.thorough
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/programs.md", monkeypatch, replace={})
    assert capsys.readouterr().out.splitlines() == [
        "14 belief<store#0",
        "- edge store<store#0: edge 'store<belief#0' replaces all that it writes, whenever it does",
        "- edge act<act#0: edge 'act<belief#0' replaces all that it writes, whenever it does",
        "- meter belief: no clock and no condition reads it",
        "~ region facts: it is a constant: its content after 20 rows",
        "- edge facts<eye#0: 'facts' is a constant, which nothing writes",
        "{'facts': (6, 8)}",
        "(7, 7) camera, belief, arms[0], arms[0].joints, arms[0].motor, arms[1], arms[1].joints, arms[1].motor",
        "the second extends the first: its parameters load by key",
        "  + edge act<eye#0",
        "edge act<eye#0 ",
    ]
    assert main(["program", "check", "agent.program.json"]) == 0
    assert "it can run" in capsys.readouterr().out


def test_its_lists_are_complete() -> None:
    text = (DOCS / "programs.md").read_text(encoding="utf-8")
    words = {*RULES, *CARRIERS, *OPERATORS, *Region.__struct_fields__} - {"bind", "box"}
    assert not {word for word in words if word not in text}
