"""Commands of benchmarks that documents and the benchmarks show: they exist, with the flags that stand there."""

from __future__ import annotations

import re

import pytest

from benchmarks.__main__ import SUITES, programs
from benchmarks.suites import commands
from tests.project.pages import ROOT

COMMAND = re.compile(r"python -m benchmarks (?P<name>[a-z]\w+)(?P<rest>(?:[^`\n\\]|\\\n)*)")
SHOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.py")])
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def flags_of(name: str) -> set[str]:
    """Flags that a suite or a program takes."""
    if name not in SUITES:
        text = _text(name)
        own = [text, *(_text(module) for module in re.findall(r"^from benchmarks\.(\w+) import", text, re.MULTILINE))]
        return {f"--{word}" for part in own for word in re.findall(r'"(?:--)?([a-z][\w-]*)"', part)}
    from cyclopts import App

    app = App()
    app.default(getattr(commands, name))
    return {flag for argument in app.assemble_argument_collection() for flag in argument.names}


def _text(name: str) -> str:
    """Return a program of the benchmarks, or what programs share."""
    path = ROOT / "benchmarks" / f"{name}.py"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def commands_of(text: str) -> list[tuple[str, set[str]]]:
    """Return the name of each command and the flags that stand behind it, up to a comment or the end of a sentence."""
    found = COMMAND.finditer(text)
    return [(one["name"], {*FLAG.findall(re.split(r" {2,}#|\)|;|, ", one["rest"])[0])}) for one in found]


def test_commands_are_taken_apart() -> None:
    text = "run `python -m benchmarks states M --depths 1` or\n"
    text += "python -m benchmarks layers --device cpu \\\n  -t 2 --only a  # --x"
    assert commands_of(text) == [("states", {"--depths"}), ("layers", {"--device", "--only"})]
    assert {"--depths", "--rounds"} <= flags_of("states")
    assert {"--only", "--torch-python", "--device"} <= flags_of("layers")


@pytest.mark.parametrize("path", [path for path in SHOWN if COMMAND.search(path.read_text(encoding="utf-8"))], ids=str)
def test_commands_of_benchmarks_that_are_shown_exist(path) -> None:
    known = {*SUITES, *programs()}
    for name, flags in commands_of(path.read_text(encoding="utf-8")):
        assert name in known, f"{path}: python -m benchmarks {name}"
        unknown = flags - flags_of(name)
        assert not unknown, f"{path}: python -m benchmarks {name}: {unknown}"


def test_programs_say_how_they_are_run() -> None:
    """All but those that are asked to take no arguments show a command line in their docstrings."""
    for name in programs():
        text = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert name in {shown for shown, _ in commands_of(text)}, name
