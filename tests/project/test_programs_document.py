"""The examples of docs/programs.md run, one after the other, and its lists are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.test_network_document import DOCS, examples
from volumetric.cli import main
from volumetric.layers.program.names import CARRIERS, OPERATORS, RULES
from volumetric.program import Region

CANVAS = Path(__file__).parent.parent / "fixtures" / "programs" / "by_hand.json"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    first, *rest = examples("programs.md")
    exec(compile(first, "docs/programs.md", "exec"), names)
    assert capsys.readouterr().out == "14 belief<store#0\n"
    for command in ("program check", "inspect"):
        assert f"volumetric {command} agent.program.json" in (DOCS / "programs.md").read_text(encoding="utf-8")
        assert main([*command.split(), "agent.program.json"]) == 0
    assert "nothing keeps it from being run" in capsys.readouterr().out
    command = "program draw agent.program.json -o agent.svg"
    assert f"volumetric {command}" in (DOCS / "programs.md").read_text(encoding="utf-8")
    assert main(command.split()) == 0
    for code in rest:
        exec(compile(code, "docs/programs.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "- edge store<store#0: edge 'store<belief#0' replaces all that it writes, whenever it does",
        "- edge act<act#0: edge 'act<belief#0' replaces all that it writes, whenever it does",
        "- meter belief: no clock and no condition looks at it",
        "~ region facts: it is a constant: what it holds after 20 rows",
        "- edge facts<eye#0: 'facts' is a constant, into which nothing comes",
        "{'facts': (6, 8)}",
        "(7, 7) camera, belief, arms[0], arms[0].joints, arms[0].motor, arms[1], arms[1].joints, arms[1].motor",
        "the second extends the first: its parameters load by key",
        "  + edge act<eye#0",
        "edge act<eye#0 ",
    ]


def test_its_lists_are_complete() -> None:
    text = (DOCS / "programs.md").read_text(encoding="utf-8")
    words = {*RULES, *CARRIERS, *OPERATORS, *Region.__struct_fields__} - {"bind", "box"}
    assert not {word for word in words if word not in text}
