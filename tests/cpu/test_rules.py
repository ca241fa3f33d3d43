"""Rules that all CPU kernels keep, checked on their source, and where compiled code is kept."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import volumetric.devices.cpu
from volumetric.devices.cpu.kernels import jit, row_operations

KERNELS = sorted(Path(jit.__file__).parent.glob("*.py"))
RUNTIME = sorted(Path(volumetric.devices.cpu.__file__).parent.glob("*.py"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", [*KERNELS, *RUNTIME], ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_one_place_compiles(path):
    """No kernel chooses options or signatures of its own: `jit.kernel` and `jit.compile_operation` do."""
    names = {"njit", "jit", "cfunc", "vectorize", "guvectorize", "prange", "CFunc"}
    used = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names}
    found = used & names
    assert not found or (path.name == "jit.py" and found <= {"njit", "CFunc"})


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_kernels_are_decorated_without_arguments(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                assert not (isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "kernel")


def test_infinities_keep_their_meaning():
    assert not {"nnan", "ninf", "fast", "afn"} & jit.FASTMATH


def test_operations_close_over_constants_only():
    values = [1, 2]

    def operation(step, thread, threads, control):
        values.append(step)

    with pytest.raises(TypeError, match="strings and integers"):
        jit.compile_operation(operation)


def run_child(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


CHILD = """
from volumetric.devices.cpu.kernels.operations import ROWS
print(ROWS.compile("add").cache_hits)
"""


@pytest.mark.thorough
def test_second_process_loads_what_the_first_compiled(tmp_path):
    assert run_child(CHILD, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == "0"
    if sys.platform.startswith("linux"):
        assert [*tmp_path.glob(f"volumetric/kernels/*/{jit.source_hash(Path(row_operations.__file__))}/*.nbc")]
    assert run_child(CHILD, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)) == "1"


@pytest.mark.thorough
def test_cache_can_be_turned_off(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path), "VOLUMETRIC_JIT_CACHE": "0"}
    for _ in range(2):
        assert run_child(CHILD, **environment) == "0"
    assert not [*tmp_path.rglob("*.nbc")]
