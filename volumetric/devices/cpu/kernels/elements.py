"""Element-wise functions of one and two values, on the rows of a call.

Rows are divided among the threads in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.devices.cpu.kernels.formula_kernels import allow_registered
from volumetric.devices.cpu.kernels.graph.elementwise import pair
from volumetric.devices.cpu.kernels.graph.unary import apply, apply_by
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import last_row, number, slot_address, slot_stride, word

UNARY_ARGUMENTS = ("input", "output", "width", "alpha", "beta")


@allow_registered(apply_by)
def unary(code: int) -> Callable[..., None]:
    """Function number `code` of each element."""

    def unary(step: Any, thread: Any, threads: Any, control: Any) -> None:
        alpha, beta = splat(number(step, 3)), splat(number(step, 4))
        rows = last_row(step, control)
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
            out = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
            for i in range(0, word(step, 2), 16):
                store(out + 4 * i, apply(code, load(x + 4 * i), alpha, beta))

    return unary


BINARY_ARGUMENTS = ("a", "b", "output", "width")


def binary(code: int) -> Callable[..., None]:
    """Function number `code` of pairs of elements."""

    def binary(step: Any, thread: Any, threads: Any, control: Any) -> None:
        rows = last_row(step, control)
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            a = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
            b = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
            out = slot_address(control, word(step, 2)) + row * slot_stride(control, word(step, 2))
            for i in range(0, word(step, 3), 16):
                store(out + 4 * i, pair(code, load(a + 4 * i), load(b + 4 * i)))

    return binary
