"""docs/evolution.md tells the truth: its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "evolution.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
GUARD = 'if __name__ == "__main__":\n'
SCRIPTS, SNIPPETS = ([code for code in EXAMPLES if (GUARD in code) == guarded] for guarded in (True, False))


@pytest.mark.thorough
@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/evolution.md", "exec"), {"__name__": "snippet"})


def run(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    (home / "script.py").write_text(code, encoding="utf-8")
    paths = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=home, env=os.environ | paths, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("code", SCRIPTS, ids=range(len(SCRIPTS)))
def test_a_script_runs(code: str, tmp_path: Path) -> None:
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert -0.5 <= float(done.stdout) <= 0
    assert re.findall(r"generation (\d)", done.stderr) == ["0", "1", "2"]


@pytest.mark.thorough
def test_a_script_without_the_guard_is_told_of_it(tmp_path: Path) -> None:
    code = SCRIPTS[0].replace(GUARD, "if True:\n")
    done = run(code, tmp_path)
    assert done.returncode == 1
    assert "freeze_support" not in done.stderr
    assert 'if __name__ == "__main__"' in done.stderr
