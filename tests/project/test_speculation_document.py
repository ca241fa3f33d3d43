"""docs/speculation.md tells the truth: its example runs, and its flag exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "speculation.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "docs/speculation.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out.split()[-1]) <= 1
