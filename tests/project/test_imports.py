"""What the import linter does not see: modules that are imported by their names as text, and what is never imported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_sources import ROOT, SOURCES

BY_NAME = re.compile(r"\b(import_module|__import__|find_spec|resolve_name|run_module|modules_of)\b")
"""What imports a module whose name it is handed as text."""
MECHANISM = {"volumetric/base/registry.py", "volumetric/base/moved_modules.py"}
"""How registries import, and the old paths of modules."""
OURS = re.compile(r"volumetric(\.\w+)*")


def package_of(path: Path) -> str:
    """The package that a file is in."""
    return ".".join(path.relative_to(ROOT).parts[:-1])


def named(text: str, package: str) -> list[str]:
    """Modules outside of `package` that a source imports by text."""
    if not BY_NAME.search(text):
        return []
    found = [one.rstrip(".") for one in constants(ast.parse(text)) if OURS.match(one)]
    return [one for one in found if one != package and not one.startswith(f"{package}.")]


def constants(tree: ast.AST) -> Iterator[str]:
    """Texts of a source that are neither docstrings nor names of loggers or of groups of entry points."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            prose.update(map(id, node.args))
        if isinstance(node, ast.keyword) and node.arg == "group":
            prose.add(id(node.value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from importlib import import_module\nimport_module('volumetric.run.plan')", ["volumetric.run.plan"]),
        ("import importlib\nimportlib.import_module(f'volumetric.run.{x}')", ["volumetric.run"]),
        ("__import__('volumetric')", ["volumetric"]),
        ("call(target=import_module, args=('volumetric.train',))", ["volumetric.train"]),
        ("import_module('volumetric.layers.kinds.small')\nimport_module(f'{__name__}.small')", []),
        ("modules_of('volumetric.layers', {}, group='volumetric.things')", []),
        ("'''volumetric.train'''\nimport_module(x)\nlog = logging.getLogger('volumetric.train')", []),
    ],
)
def test_imports_by_text_are_found(text: str, found: list[str]) -> None:
    assert named(text, "volumetric.layers") == found


def test_no_module_imports_another_by_text_outside_of_its_own_package() -> None:
    found = {path.relative_to(ROOT).as_posix(): named(path.read_text("utf-8"), package_of(path)) for path in SOURCES}
    assert not {name: modules for name, modules in found.items() if modules and name not in MECHANISM}


def test_what_is_required_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^\w-]", line)[0].replace("-", "_") for line in project["dependencies"]}
    statement = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
    imported = {name for path in SOURCES for name in statement.findall(path.read_text("utf-8"))}
    assert len(names) == len(project["dependencies"])
    assert not names - imported


@pytest.mark.thorough
@pytest.mark.parametrize("import_it", ["import volumetric.program", "import volumetric.program.files"])
def test_a_program_makes_its_network_whatever_was_imported_before(import_it: str) -> None:
    text = f"""
{import_it}
from volumetric.program.layer.region import Canvas
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.region import Region
canvas = Canvas(frames=1, shape=(2, 2), width=8, regions={{"a": Region(((0, 2), (0, 2)))}})
program = Program(canvas, edges=[], ports={{"in": In("a", 3), "out": Out("a", 2)}})
print(program.network().input_shape)
"""
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "(3,)\n", done.stderr
