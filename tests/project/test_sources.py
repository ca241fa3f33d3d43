"""Rules that every source file of the package keeps."""

from __future__ import annotations

import ast
import re
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


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_source = pytest.mark.parametrize("path", SOURCES, ids=name_of)
each_text = pytest.mark.parametrize("path", TEXTS, ids=name_of)


def test_the_lists_of_files_are_not_empty() -> None:
    assert len(SOURCES) > 50
    assert {"README.md", "Makefile"} <= {path.name for path in TEXTS}


@each_source
def test_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_source
def test_module_is_one_idea_long(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@each_source
def test_module_name_says_something(path: Path) -> None:
    assert path.stem not in MEANINGLESS_NAMES


@each_source
def test_module_does_not_silence_all_errors(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bare = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.type is None]
    assert not bare


@each_text
def test_text_names_no_path_of_one_machine(path: Path) -> None:
    assert not MACHINE_PATH.findall(path.read_text(encoding="utf-8"))


@each_text
def test_text_leaves_nothing_to_do(path: Path) -> None:
    if path == Path(__file__):
        return
    assert not UNFINISHED.findall(path.read_text(encoding="utf-8"))
