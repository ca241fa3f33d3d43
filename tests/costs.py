"""What tests cost: seconds, and the CPU kernels and GPU pipelines that a file needs.

Compiling is most of the time of a cold run, so each file has a budget in ``budgets.json``: how many different
operations of the CPU and how many different pipelines its tests may ask for. A file that asks for more fails. They
count whether they were compiled, loaded, or in the process already, so caches do not matter.

``pytest --costs FILE`` writes a line of JSON for each test, from all processes that run tests, and
``scripts/test_budgets.py FILE`` makes the table from it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest

BUDGETS = Path(__file__).with_name("budgets.json")
KINDS = ("kernels", "pipelines")
SLACK = {"kernels": 200, "pipelines": 40}
"""By how much a file may exceed its budget: alone, or in another order, it opens models that files before it share."""

_asked: dict[str, set[Hashable]] = {kind: set() for kind in KINDS}
"""What the tests of the present file have asked for."""


def watch() -> None:
    """Note from now on what is asked for."""
    from volumetric.devices.cpu.kernels.jit import KernelLibrary
    from volumetric.devices.gpu.open_gpu import OpenGpu

    _note(KernelLibrary, "compile", "kernels", lambda library, name, *constants: (library.home, name, constants))
    _note(OpenGpu, "pipeline", "pipelines", lambda context, dispatch: (repr(context.caps), dispatch.key))


def _note(owner: Any, method: str, kind: str, key: Callable[..., Hashable]) -> None:
    original = getattr(owner, method)

    def noted(*arguments: Any) -> Any:
        _asked[kind].add(key(*arguments))
        return original(*arguments)

    setattr(owner, method, noted)


def beyond_budget(path: Path) -> str | None:
    """Say by what the tests of a file went beyond its budget, and begin to count for the next file."""
    asked = {kind: len(keys) for kind, keys in _asked.items()}
    for keys in _asked.values():
        keys.clear()
    name = path.relative_to(BUDGETS.parents[1]).as_posix()
    budget = json.loads(BUDGETS.read_text(encoding="utf-8")).get(name, {})
    over = [
        f"{count} {kind} (budget {budget.get(kind, 0)})"
        for kind, count in asked.items()
        if count > budget.get(kind, 0) + SLACK[kind]
    ]
    if not over:
        return None
    advice = f"use shapes that others use, or raise the budget in tests/{BUDGETS.name} and say why"
    return f"{name} needs {' and '.join(over)}: {advice}"


class Costs:
    """A plugin that writes what each test took, and what its file has asked for until then.

    Parameters
    ----------
    path : file that lines are appended to; several processes may write to it
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = self._spent = 0.0
        self._counts: dict[str, int] = {}

    def pytest_runtest_logstart(self) -> None:
        """Begin to measure."""
        self._began, self._spent = time.perf_counter(), _processor_seconds()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Note the counts before the next file's begin."""
        self._counts = {kind: len(keys) for kind, keys in _asked.items()}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write the line."""
        seconds = {"wall": time.perf_counter() - self._began, "cpu": _processor_seconds() - self._spent}
        line = {"test": nodeid, **{name: round(value, 3) for name, value in seconds.items()}, **self._counts}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _processor_seconds() -> float:
    """Seconds of processors that this process and its ended children took."""
    return sum(os.times()[:4])
