"""Run steps with the same partition block by block, so that each finds the previous one's data in the cache."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.memory_access import call_operation, load_i64
from volumetric.devices.cpu.kernels.step_words import STEP_WORDS, word

BLOCKED_ARGUMENTS = ("first", "count", "blocks")
"""Address and number of the steps, and the number of blocks for a single thread."""


def run_blocked(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Run steps on each block of the thread's share in turn.

    Shares nest: that of thread t among n consists of those of the threads t b … t b + b - 1 among n b.
    """
    first, count = word(step, 0), word(step, 1)
    blocks = max(1, word(step, 2) // threads)
    for block in range(blocks):
        for i in range(count):
            inner = first + 8 * STEP_WORDS * i
            call_operation(load_i64(inner), inner, thread * blocks + block, threads * blocks, control)
