"""The walker of a single thread: no barriers, no workers to wake."""

from __future__ import annotations

from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import call_operation, load_i64
from volumetric.kernels.cpu.steps import STEP_WORDS

_STEP_BYTES = 8 * STEP_WORDS


@kernel
def run_alone(table, steps, control):
    """Run the steps at address `table` one after the other."""
    for index in range(steps):
        step = table + index * _STEP_BYTES
        call_operation(load_i64(step), step, 0, 1, control)
