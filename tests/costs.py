"""What each test costs: seconds, seconds of processors, CPU kernels loaded or compiled, and GPU pipelines compiled.

``pytest --costs FILE`` writes a line of JSON for each test, from all processes that run tests. Kernels and pipelines
are counted where they are made: a kernel that an earlier file left in the process costs the next one nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

made = {"kernels": 0, "pipelines": 0}
"""How many this process has made so far."""


def watch() -> None:
    """Count from now on."""
    from volumetric.kernels.cpu import jit
    from volumetric.runtime.gpu import context

    _count(jit._KernelCache, "load_overload", "kernels")
    _count(context.GpuContext, "_compile", "pipelines")


def _count(owner: Any, method: str, name: str) -> None:
    original = getattr(owner, method)

    def counted(*arguments: Any) -> Any:
        made[name] += 1
        return original(*arguments)

    setattr(owner, method, counted)


class Costs:
    """A plugin that writes what each test cost.

    Parameters
    ----------
    path : file that lines are appended to; several processes may write to it
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began, spent, before = time.perf_counter(), _processor_seconds(), dict(made)
        result = yield
        cost = {
            "test": item.nodeid,
            "wall": round(time.perf_counter() - began, 4),
            "cpu": round(_processor_seconds() - spent, 4),
            **{name: count - before[name] for name, count in made.items()},
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(cost) + "\n")
        return result


def _processor_seconds() -> float:
    """Seconds of processors that this process and its ended children took."""
    return sum(os.times()[:4])
