"""Time per step on the CPU: a second walk over a table, one native call for each step.

The usual walk stays as it is. Steps run in their order, so a step finds in the caches what it finds in a real call.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from volumetric.kernels.cpu.steps import STEP_WORDS
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.graph.cores import Core
from volumetric.runtime.profile import WHOLE, StepTime, by_label

_EMPTY_CALLS = 50


def walk_times(
    table: StepTable, control: int, threads: int, repeats: int, between: Callable[[Core], None]
) -> list[StepTime]:
    """Times of the steps of `table`, the best of `repeats` walks; what an empty call takes is taken off each of them.

    Parameters
    ----------
    control : address of a control block that is ready for a call
    between : runs what stands between steps
    """

    def run(first: int, steps: int) -> float:
        began = time.perf_counter()
        TEAM.run(table.address + first * 8 * STEP_WORDS, steps, control, threads)
        return time.perf_counter() - began

    def timed(core: Core) -> float:
        began = time.perf_counter()
        between(core)
        return time.perf_counter() - began

    def walk() -> float:
        first, seconds = 0, 0.0
        for stop, core in table.stops:
            seconds += run(first, stop - first) + timed(core)
            first = stop
        return seconds + run(first, table.steps - first)

    whole = min(walk() for _ in range(repeats + 1))
    empty = min(run(0, 0) for _ in range(_EMPTY_CALLS))
    cores = [min(timed(core) for _ in range(repeats + 1)) for _, core in table.stops]
    single = np.array([[run(at, 1) for at in range(table.steps)] for _ in range(repeats + 1)])
    seconds = np.maximum(single.min(axis=0, initial=np.inf) - empty, 0.0)
    labels = [*table.labels, *(f"core {core.segment.name}" for _, core in table.stops)]
    found = by_label(zip(labels, [*seconds.tolist(), *cores], strict=True))
    return [*found, StepTime(label=WHOLE, count=len(labels), seconds=whole)]
