"""Names say what they stand for: the part of CONTRIBUTING's "Words" that a program can check."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "volumetric"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

pytestmark = pytest.mark.thorough  # they read all files

EMPTY = frozenset({"found", "given", "made", "told", "kept"})
"""Participles that were names of variables, parameters and attributes, and say nothing of what these hold."""
EMPTY_IN_SCRIPTS = re.compile(
    rf"(?:\b(?:const|let|var)|[,({{\[])\s*({'|'.join(sorted(EMPTY))})\s*(?:[=,)\]}};]|of\b|in\b)"
)
"""The same where JavaScript declares, destructures or passes a variable."""
NO_VERBS = re.compile(
    r"_?(?:apart|asked|brought|built|done|drawn|found|given|gone|handed|held|joined|kept|known|laid|left|made|meant|put|"
    r"said|seen|shown|taken|told|wanted|written)"
)
"""Functions are named by a verb with its object, or by what they return."""
NEED_THEIR_FOLDER = frozenset(
    {"apart", "asked", "between", "given", "held", "kept", "left", "made", "parts", "pieces", "seats", "taken", "told"}
)
"""File names that nobody understands without the name of their folder."""
CELLS = frozenset({"Axon", "LSTM", "SLSTM"})
"""Cells that are a layer, a preset of stacks and a population of fabrics, all under the name that the field has."""
LONG = 25
"""Lines of a private function that needs no docstring."""


@cache
def modules() -> dict[str, ast.Module]:
    """Path from the package → its syntax tree."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each variable, parameter, field and attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node.lineno, name


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, tuple[ast.AST, ...]]]:
    """Yield each function with the classes and functions around it, from the outside in."""

    def within(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.FunctionDef, tuple[ast.AST, ...]]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                yield child, around  # pyright: ignore[reportReturnType]
            inner = (*around, child) if isinstance(child, (*FUNCTIONS, ast.ClassDef)) else around
            yield from within(child, inner)

    yield from within(tree, ())


def test_no_class_name_stands_in_more_than_two_modules() -> None:
    where = defaultdict[str, set[str]](set)
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                where[node.name].add(path)
    assert not {name: sorted(paths) for name, paths in where.items() if len(paths) > 2 and name not in CELLS}


def test_variables_say_what_they_hold() -> None:
    assert not [
        f"{path}:{line} {name}" for path, tree in modules().items() for line, name in names(tree) if name in EMPTY
    ]


def test_variables_of_scripts_say_what_they_hold() -> None:
    scripts = [path for path in sorted(PACKAGE.rglob("*.js")) if "vendor" not in path.parts]
    assert len(scripts) > 100
    assert not [
        f"{path.relative_to(PACKAGE)} {match[0]}"
        for path in scripts
        for match in EMPTY_IN_SCRIPTS.finditer(path.read_text(encoding="utf-8"))
    ]


def test_functions_are_named_by_what_they_do_or_return() -> None:
    bare = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in modules().items()
        for node, _ in functions(tree)
        if NO_VERBS.fullmatch(node.name)
    ]
    assert not bare


def test_file_names_say_something_without_their_folder() -> None:
    assert not [path for path in modules() if Path(path).stem in NEED_THEIR_FOLDER]


def _is_overload(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "overload"


def test_public_functions_have_a_docstring() -> None:
    """Overrides, functions in functions and special methods need none."""
    missing = []
    for path, tree in modules().items():
        for node, around in functions(tree):
            inside = any(isinstance(outer, FUNCTIONS) for outer in around)
            private = any(outer.name.startswith("_") for outer in (node, *around))  # pyright: ignore[reportAttributeAccessIssue]
            lines = (node.end_lineno or 0) - node.lineno + 1
            if inside or node.name.startswith("__") or any(map(_is_overload, node.decorator_list)):
                continue
            derived = bool(around) and isinstance(around[-1], ast.ClassDef) and bool(around[-1].bases)
            needs = (lines > LONG) if private else not derived
            if needs and not ast.get_docstring(node):
                missing.append(f"{path}:{node.lineno} {node.name}")
    assert not missing
