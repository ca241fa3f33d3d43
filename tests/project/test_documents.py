"""The documents at the root agree with the code beside them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from benchmarks.__main__ import SUITES, programs
from scripts import formula_page
from tests.project.printed_results import assert_printed, examples
from volumetric.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
README = examples("README.md")


def code_blocks(document: str) -> str:
    """All fenced blocks and inline code of a document."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


def test_version_is_the_same_everywhere() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "volumetric/__init__.py"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(volumetric.__version__)}\b", changelog, re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_that_documents_name_exist(document: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", code_blocks(document)))
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_that_documents_name_exist(document: str) -> None:
    pattern = r"`((?:volumetric|tests|docs|benchmarks|scripts|\.ci)/[\w./-]*)`|\]\((?!https?:)([\w./-]+)\)"
    text = (ROOT / document).read_text(encoding="utf-8")
    named = {first or second for first, second in re.findall(pattern, text)}
    assert not {path for path in named if not (ROOT / path).exists()}


def test_page_of_formulas_is_current() -> None:
    assert formula_page.page() == (ROOT / "docs/formulas.md").read_text(encoding="utf-8"), "run: make docs"


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 110


@pytest.mark.thorough
def test_support_table_is_current() -> None:
    command = [sys.executable, "scripts/support_table.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_import_rules_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_has_examples() -> None:
    assert len(README) == 3
    assert all(shown for _, shown in README)
    for code, _ in README:
        statements = [line for line in code.splitlines() if line.strip() and not line.startswith((" ", "#"))]
        assert len(statements) <= 6


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(3))
def test_readme_example_prints_what_is_shown(
    number: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if number == 0:
        monkeypatch.setenv("VOLUMETRIC_DEVICE", "cpu")  # GPUs sum in another order
    code, shown = README[number]
    exec(compile(code, f"README.md, example {number}", "exec"), {})
    assert_printed(capsys.readouterr().out, shown, f"README.md, example {number}")


@pytest.mark.thorough
@pytest.mark.parametrize("device", ["cpu", "gpu", "reference", "auto"])
def test_the_network_of_the_readme_runs_on_every_device(
    device: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded with a device's name, and compiled by hand with the options that all devices have by default."""
    monkeypatch.chdir(tmp_path)
    code = README[1][0]
    assert 'load("xor")' in code
    names: dict[str, Any] = {}
    exec(compile(code.replace('load("xor")', f'load("xor", device="{device}")'), "README.md", "exec"), names)
    assert_xor(capsys.readouterr().out)
    opened = volumetric.open_device(device)
    executable = opened.compile(volumetric.lower(names["network"]), names["result"].params)
    x = np.array(names["x"], np.float32)
    assert_xor(str(executable.forward(executable.new_state(), x, last_only=False).round(2)))


def assert_xor(printed: str) -> None:
    """The numbers in `printed` are about 0, 1, 1, 0."""
    assert np.allclose([float(x) for x in re.findall(r"-?\d*\.\d*", printed)], [0, 1, 1, 0], atol=0.05), printed


def test_commands_that_readme_and_commands_show_exist() -> None:
    named = set(re.findall(r"^volumetric ([a-z]+)", code_blocks("docs/commands.md"), re.MULTILINE))
    assert named >= set(re.findall(r"^volumetric ([a-z]+)", code_blocks("README.md"), re.MULTILINE))
    assert named <= set(COMMANDS)


def test_figures_of_the_readme_name_their_benchmark() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Why not")[2]
    rows = re.findall(r"^\| \*\*.*\| (`.*) \|$", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| \*\*", text, re.MULTILINE)) == 8
    named = {name.split()[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named <= {*SUITES, *programs()}


def test_files_that_the_readme_runs_exist() -> None:
    lines = code_blocks("README.md") + code_blocks("docs/commands.md")
    named = re.findall(r"^volumetric (?:train|evolve|perplexity) (.*)$", lines, re.MULTILINE)
    files = [word for line in named for word in line.split() if Path(word).suffix]
    assert len(files) >= 3
    assert not [file for file in files if not (ROOT / file).exists()]
