"""Time per step on the CPU: a second walk over a table, one native call for each step.

The usual walk stays as it is. Steps run in their order, so a step finds in the caches what it finds in a real call.
"""

from __future__ import annotations

import time

import numpy as np

from volumetric.kernels.cpu.steps import STEP_WORDS
from volumetric.runtime.cpu.table import StepTable
from volumetric.runtime.cpu.team import TEAM
from volumetric.runtime.profile import WHOLE, StepTime, by_label

_EMPTY_CALLS = 50


def walk_times(table: StepTable, control: int, threads: int, repeats: int) -> list[StepTime]:
    """Times of the steps of `table`, the best of `repeats` walks; what an empty call takes is taken off each of them.

    Parameters
    ----------
    control : address of a control block that is ready for a call
    """

    def run(first: int, steps: int) -> float:
        began = time.perf_counter()
        TEAM.run(table.address + first * 8 * STEP_WORDS, steps, control, threads)
        return time.perf_counter() - began

    whole = min(run(0, table.steps) for _ in range(repeats + 1))
    empty = min(run(0, 0) for _ in range(_EMPTY_CALLS))
    single = np.array([[run(at, 1) for at in range(table.steps)] for _ in range(repeats + 1)])
    seconds = np.maximum(single.min(axis=0) - empty, 0.0)
    found = by_label(zip(table.labels, seconds.tolist(), strict=True))
    return [*found, StepTime(label=WHOLE, count=table.steps, seconds=whole)]
