"""docs/memory_tasks.md tells the truth: its table is that of the tasks, its example runs."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_the_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "docs/memory_tasks.md", "exec"), {})
