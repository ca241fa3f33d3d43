"""The first programs of this package run, learn, and are no longer than those of other libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.first_nets import HERE, OURS, TASKS, TEXT, lines_of, programs


def printed(task: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run our program of a task in `home`, and return what it prints."""
    shutil.copy(TEXT, home)
    monkeypatch.chdir(home)
    source = HERE / f"{task}_{OURS}.py"
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out


@pytest.mark.parametrize("task", TASKS)
def test_our_program_is_the_shortest(task: str) -> None:
    libraries = programs()[task]
    assert len(libraries) >= 4
    assert lines_of(task, OURS) == min(lines_of(task, library) for library in libraries)


def test_xor_is_learned(tmp_path, monkeypatch, capsys) -> None:
    assert printed("xor", tmp_path, monkeypatch, capsys).strip() in ("[0.0, 1.0, 1.0, 0.0]", "[-0.0, 1.0, 1.0, 0.0]")


def test_cartpole_is_balanced(tmp_path, monkeypatch, capsys) -> None:
    assert float(printed("cartpole", tmp_path, monkeypatch, capsys)) >= 475


@pytest.mark.thorough
def test_digits_are_told_apart(tmp_path, monkeypatch, capsys) -> None:
    assert float(printed("digits", tmp_path, monkeypatch, capsys)) >= 0.9


@pytest.mark.thorough
def test_text_is_learned(tmp_path, monkeypatch, capsys) -> None:
    loss, _, text = printed("text", tmp_path, monkeypatch, capsys).partition(" ")
    assert float(loss) < 2  # a uniform guess has ln 256 = 5.5, the frequencies of the bytes 2.9
    assert text.startswith("And the king ")
    assert len(text) > 60
