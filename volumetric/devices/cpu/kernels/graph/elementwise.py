"""Functions of elements, pairs of elements with broadcasting, and their gradients.

A step holds addresses of contiguous tensors and the number of elements. Threads divide the flat range of the output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.devices.cpu.kernels.formula_kernels import allow_registered, one_of
from volumetric.devices.cpu.kernels.graph.thread_shares import flat_share
from volumetric.devices.cpu.kernels.graph.unary import apply, apply_by, slope, slope_by
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import WORDS
from volumetric.devices.cpu.kernels.memory_access import load_f32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import number, word
from volumetric.formula import binary_functions

UNARY_ARGUMENTS = ("x", "y", "count", "alpha", "beta")


@allow_registered(apply_by)
def unary(code: int) -> Callable[..., None]:
    """Function number `code` of each element."""

    def unary(step: Any, thread: Any, threads: Any, control: Any) -> None:
        x, y, count = word(step, 0), word(step, 1), word(step, 2)
        alpha, beta = splat(number(step, 3)), splat(number(step, 4))
        first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
        whole = first + (last - first) // 16 * 16
        for i in range(first, whole, 16):
            store(y + 4 * i, apply(code, load(x + 4 * i), alpha, beta))
        if whole < last:
            value = apply(code, load_part(x + 4 * whole, last - whole), alpha, beta)
            store_part(y + 4 * whole, value, last - whole)

    return unary


UNARY_GRAD_ARGUMENTS = ("g", "x", "y", "count")


@allow_registered(slope_by)
def unary_grad(code: int) -> Callable[..., None]:
    """``g · f'(x)`` of each element."""

    def unary_grad(step: Any, thread: Any, threads: Any, control: Any) -> None:
        g, x, y, count = word(step, 0), word(step, 1), word(step, 2), word(step, 3)
        first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
        whole = first + (last - first) // 16 * 16
        for i in range(first, whole, 16):
            store(y + 4 * i, load(g + 4 * i) * slope(code, load(x + 4 * i)))
        if whole < last:
            rest = last - whole
            value = load_part(g + 4 * whole, rest) * slope(code, load_part(x + 4 * whole, rest))
            store_part(y + 4 * whole, value, rest)

    return unary_grad


PAIRS = tuple(binary_functions.PAIRS)
"""Index = the code of a function of two numbers."""

pair = one_of(__name__, "pair", "a b", [each.value for each in binary_functions.PAIRS.values()], WORDS)
"""(code, a, b) → function number `code` of `PAIRS`."""


@kernel
def _pair_run(code, a, a_step, b, b_step, out, count):
    """`count` neighbouring elements; strides are 4, or 0 for a number combined with all of the other operand."""
    whole = count // 16 * 16
    rest = count - whole
    if a_step == 4 and b_step == 4:
        for i in range(0, 4 * whole, 64):
            store(out + i, pair(code, load(a + i), load(b + i)))
        if rest > 0:
            i = 4 * whole
            store_part(out + i, pair(code, load_part(a + i, rest), load_part(b + i, rest)), rest)
    elif a_step == 4:
        y = splat(load_f32(b))
        for i in range(0, 4 * whole, 64):
            store(out + i, pair(code, load(a + i), y))
        if rest > 0:
            i = 4 * whole
            store_part(out + i, pair(code, load_part(a + i, rest), y), rest)
    else:
        x = splat(load_f32(a))
        for i in range(0, 4 * whole, 64):
            store(out + i, pair(code, x, load(b + i)))
        if rest > 0:
            i = 4 * whole
            store_part(out + i, pair(code, x, load_part(b + i, rest)), rest)


BINARY_ARGUMENTS = ("a", "b", "y", "count", "n1", "n2", "n3", *(f"{x}{axis}" for x in "ab" for axis in range(4)))
"""Sizes of the last three of four axes, and for each operand its stride in bytes along each axis (0: broadcast)."""


def binary(code: int) -> Callable[..., None]:
    """Function number `code` of pairs of elements."""

    def binary(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count, n1, n2, inner = word(step, 3), word(step, 4), word(step, 5), word(step, 6)
        first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
        at = first
        while at < last:
            row, column = at // inner, at % inner
            i2 = row % n2
            i1 = row // n2 % n1
            i0 = row // n2 // n1
            a = word(step, 0) + i0 * word(step, 7) + i1 * word(step, 8) + i2 * word(step, 9) + column * word(step, 10)
            b = (
                word(step, 1)
                + i0 * word(step, 11)
                + i1 * word(step, 12)
                + i2 * word(step, 13)
                + column * word(step, 14)
            )
            here = min(inner - column, last - at)
            _pair_run(code, a, word(step, 10), b, word(step, 14), word(step, 2) + 4 * at, here)
            at += here

    return binary
