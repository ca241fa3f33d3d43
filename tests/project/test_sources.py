"""Rules that every source file of the package keeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "volumetric").rglob("*.py"))
TEXTS = sorted(
    path
    for folder in ("volumetric", "tests", "benchmarks", "scripts", "docs", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.suffix in {".py", ".wgsl", ".md", ".sh", ".toml", ".pyi", ""}
) + sorted([*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"])
MAX_LINES = 400
MEANINGLESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base_utils"}

# A person's or a machine's own folders; /tmp and placeholders such as /path/to are nobody's.
MACHINE_PATH = re.compile(r"(?<![\w.<{$])/(?:home|root|Users|work|mnt)/\w")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def offenders(paths: list[Path], breaks_rule: Callable[[str], object]) -> dict[str, object]:
    """What `breaks_rule` finds in the text of each file, where it finds anything."""
    found = {p.relative_to(ROOT).as_posix(): breaks_rule(p.read_text(encoding="utf-8")) for p in paths}
    return {name: what for name, what in found.items() if what}


def test_the_lists_of_files_are_not_empty() -> None:
    assert len(SOURCES) > 50
    assert {"README.md", "Makefile"} <= {path.name for path in TEXTS}


@pytest.mark.thorough
def test_modules_say_what_they_are_for() -> None:
    assert not offenders(SOURCES, lambda text: not ast.get_docstring(ast.parse(text)))


def test_modules_are_one_idea_long() -> None:
    tests = [path for folder in ("tests", "scripts", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    assert not offenders([*SOURCES, *tests], lambda text: len(text.splitlines()) > MAX_LINES)


def test_module_names_say_something() -> None:
    assert not [path for path in SOURCES if path.stem in MEANINGLESS_NAMES]


@pytest.mark.thorough
def test_no_module_catches_all_errors_without_naming_them() -> None:
    def bare_handlers(text: str) -> list[int]:
        nodes = ast.walk(ast.parse(text))
        return [node.lineno for node in nodes if isinstance(node, ast.ExceptHandler) and node.type is None]

    assert not offenders(SOURCES, bare_handlers)


@pytest.mark.thorough
def test_no_text_names_a_path_of_one_machine() -> None:
    assert not offenders(TEXTS, MACHINE_PATH.findall)


@pytest.mark.thorough
def test_no_text_leaves_something_to_do() -> None:
    assert not offenders([path for path in TEXTS if path != Path(__file__)], UNFINISHED.findall)
