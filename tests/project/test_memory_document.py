"""docs/memory_tasks.md tells the truth: its table is that of the tasks, its example runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from volumetric.cli import main
from volumetric.train.memory import TASKS

TEXT = (Path(__file__).parents[2] / "docs" / "memory_tasks.md").read_text(encoding="utf-8")


def test_the_table_is_that_of_the_tasks() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", TEXT, re.MULTILINE))
    assert rows == {
        name: f"{task.about} | {task.needs} | {task.length} | "
        + f"{task.chance:.1%}".replace(".0%", "%").replace("%", " %")
        if not task.regression
        else f"{task.about} | {task.needs} | {task.length} |"
        for name, task in TASKS.items()
    }


@pytest.mark.thorough
def test_the_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "docs/memory_tasks.md", "exec"), {})


@pytest.mark.thorough
def test_the_file_is_trained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [settings] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / settings.partition("\n")[0].removeprefix("# ")
    path.write_text(settings, encoding="utf-8")
    small = ["data.options.samples=40", "train.epochs=1", "network.options.width=8"]
    assert main(["train", str(path), "--device", "cpu", "--json", "--quiet", *(f"--set={one}" for one in small)]) == 0
    assert json.loads(capsys.readouterr().out)["updates"] == 2


@pytest.mark.thorough
def test_the_commands_are_understood(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    block = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[0]
    commands = [line.partition("#")[0].split()[1:] for line in block.splitlines()]
    assert main(commands[0]) == 0
    quick = [
        "--width",
        "8",
        "--steps",
        "1",
        "--batch",
        "2",
        "--judged",
        "8",
        "--seeds",
        "1",
        "--lengths",
        "92",
        "--quiet",
    ]
    given = [part if not part.endswith(".jsonl") else str(tmp_path / part) for part in commands[1]]
    for flag in ("--seeds", "--lengths", "--workers"):
        at = given.index(flag)
        del given[at : at + 2]
    assert main([*given, *quick]) == 0
    assert "| assoc_recall | M | 92 |" in capsys.readouterr().out
