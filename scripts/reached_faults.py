"""Record which tests reach the places where `plant_faults.py` will plant faults.

Run as ``sitecustomize`` in every process of a test run, and loaded as a plugin by pytest. ``FAULTS_PLAN`` is the plan,
``FAULTS_REACHED`` the file that gets a line with a fault and a test when that test first reaches the fault's statement.
The statement itself is left as it is: a call is inserted before it when the module is imported.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import reached_kernels

MARK = "__fault_reached__"
COMPILER = "volumetric.devices.cpu.kernels.jit"


class _Marking(ast.NodeTransformer):
    """Inserts a call before each statement that begins at a line of `faults` (line → ids)."""

    def __init__(self, faults: dict[int, list[int]]) -> None:
        self._faults = faults

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [part for statement in statements for part in self._marked(statement)])
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        faults = self._faults.pop(statement.lineno, [])
        calls: list[ast.stmt] = []
        for fault in faults:
            call = ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(fault)], []))
            calls.append(ast.fix_missing_locations(ast.copy_location(call, statement)))
        return [*calls, statement]


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, faults: dict[int, list[int]], kernels: list[dict[str, Any]]) -> None:
        super().__init__(name, path)
        self._faults, self._kernels = faults, kernels

    def get_code(self, fullname: str) -> types.CodeType:
        source = self.get_source(fullname) or ""
        tree = _Marking(dict(self._faults)).visit(ast.parse(source))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        if module.__name__ == COMPILER:
            reached_kernels.watch(module, self._kernels, getattr(builtins, MARK))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, plan: list[dict[str, Any]]) -> None:
        self._faults: dict[str, dict[int, list[int]]] = {COMPILER: {}}
        self._kernels = [fault for fault in plan if fault["kernel"]]
        for fault in plan:
            if not fault["kernel"]:
                self._faults.setdefault(fault["module"], {}).setdefault(fault["statement"], []).append(fault["id"])

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> Any:
        if fullname not in self._faults:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._faults[fullname], self._kernels)
        return spec


def install() -> None:
    """Mark the planned places of every module that is imported from here on."""
    plan = os.environ.get("FAULTS_PLAN")
    if plan is None or hasattr(builtins, MARK):
        return
    seen: set[tuple[int, str]] = set()

    def reached(fault: int) -> None:
        test = os.environ.get("FAULTS_TEST", "")
        if test and (fault, test) not in seen:
            seen.add((fault, test))
            with contextlib.suppress(OSError), Path(os.environ["FAULTS_REACHED"]).open("a") as file:
                file.write(f"{fault}\t{test}\n")

    setattr(builtins, MARK, reached)
    sys.meta_path.insert(0, _Finder(json.loads(Path(plan).read_text())))


install()


def pytest_runtest_protocol(item: Any, nextitem: Any) -> None:
    """Tell processes that a test starts, too, which test it is."""
    os.environ["FAULTS_TEST"] = item.nodeid


def pytest_runtest_logreport(report: Any) -> None:
    """Note how long each test took that passed: the quickest of them that reach a fault judge it."""
    if (
        report.when == "call"
        and report.passed
        and "FAULTS_REACHED" in os.environ
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        with Path(os.environ["FAULTS_REACHED"] + ".seconds").open("a") as file:
            file.write(f"{report.duration:.3f}\t{report.nodeid}\n")
