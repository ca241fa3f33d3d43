"""Time per step on the CPU: a separate run of a table, one native call for each step.

The usual run is unaffected. Steps run in order, so a step finds the cache contents of a real call.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.step_words import STEP_WORDS
from volumetric.devices.cpu.step_table import StepTable, TablePart
from volumetric.devices.cpu.thread_pool import THREAD_POOL
from volumetric.run.step_times import WHOLE, StepTime, by_label

_EMPTY_CALLS = 50


def step_times_of_table(table: StepTable, control: int, threads: int, repeats: int, values: Any) -> list[StepTime]:
    """Times of the steps of `table`, the best of `repeats` runs, minus the time of an empty call each.

    Parameters
    ----------
    control : address of a control block that is ready for a call
    values : argument of the Python functions between steps
    """

    def timed(part: TablePart, first: int = 0, steps: int | None = None) -> float:
        began = time.perf_counter()
        if part.host is not None:
            part.host(values)
        else:
            THREAD_POOL.run(
                part.address + first * 8 * STEP_WORDS, part.count if steps is None else steps, control, threads
            )
        return time.perf_counter() - began

    def best(part: TablePart, first: int = 0, steps: int | None = None) -> float:
        return min(timed(part, first, steps) for _ in range(repeats + 1))

    whole = min(sum(map(timed, table.parts)) for _ in range(repeats + 1))
    empty = min(timed(TablePart(name="", count=0)) for _ in range(_EMPTY_CALLS))
    hosts = [best(part) for part in table.parts if part.host is not None]
    places = [(part, first) for part in table.parts if part.host is None for first in range(part.count)]
    single = np.array([[timed(part, first, 1) for part, first in places] for _ in range(repeats + 1)])
    seconds = np.maximum(single.min(axis=0, initial=np.inf) - empty, 0.0)
    labels = [*table.labels, *(part.label for part in table.parts if part.host is not None)]
    times = by_label(zip(labels, [*seconds.tolist(), *hosts], strict=True))
    return [*times, StepTime(label=WHOLE, count=len(labels), seconds=whole)]
