"""The examples of docs/networks.md and docs/clocked.md run, one after the other."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from volumetric.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def examples(name: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in examples("networks.md"):
        exec(compile(code, "docs/networks.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[0] == "parallel (-1, 2) 93"


def test_the_examples_of_clocked_networks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in examples("clocked.md"):
        exec(compile(code, "docs/clocked.md", "exec"), names)
    [lines] = examples("clocked.md", "json")
    Path("rows.jsonl").write_text(lines)
    [settings] = examples("clocked.md", "toml")
    Path(settings.partition("\n")[0].removeprefix("# ")).write_text(settings)
    for line in "".join(examples("clocked.md", "sh")).splitlines():
        name, *arguments = line.partition(" < ")[0].split()
        assert name == "volumetric"
        if arguments[0] == "bench":
            continue  # a measurement, beside PyTorch
        if " < " in line:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(line.partition(" < ")[2]).read_bytes())))
        on_cpu = ["--device", "cpu"] if arguments[0] == "run" else []
        assert main([*arguments, *on_cpu]) == 0, line
