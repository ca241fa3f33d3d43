"""Copies between strided layouts: slices, permutations, padding, joining and repetition."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.kernels.graph.thread_shares import flat_share, share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_strided, store_part, transpose_block
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import number, scratch, word

FILL_ARGUMENTS = ("y", "count", "value")


def fill(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Set all elements to one number."""
    y, count = word(step, 0), word(step, 1)
    value = splat(number(step, 2))
    last = flat_share(count, thread + 1, threads)
    for i in range(flat_share(count, thread, threads), last, 16):
        if last - i >= 16:
            store(y + 4 * i, value)
        else:
            store_part(y + 4 * i, value, last - i)


COPY_ARGUMENTS = ("x", "y", "rows", "inner", "x_inner", "y_inner", "axes", "table")
"""`table`: for each of `axes` outer axes, the last first, (size, stride of x, stride of y); strides are in bytes."""


@kernel
def _offset(table, axes, row, which):
    """Bytes from the start to outer index `row`, in x (`which` = 1) or y (2)."""
    offset = 0
    for axis in range(axes):
        size = load_i64(table + 24 * axis)
        offset += row % size * load_i64(table + 24 * axis + 8 * which)
        row //= size
    return offset


@kernel
def _copy_run(x, x_step, y, y_step, count):
    if x_step == 4 and y_step == 4:
        whole = count // 16 * 16
        for i in range(0, 4 * whole, 64):
            store(y + i, load(x + i))
        if whole < count:
            store_part(y + 4 * whole, load_part(x + 4 * whole, count - whole), count - whole)
    elif x_step == 0 and y_step == 4:
        value = splat(load_f32(x))
        for i in range(0, count, 16):
            if count - i >= 16:
                store(y + 4 * i, value)
            else:
                store_part(y + 4 * i, value, count - i)
    elif y_step == 4:
        whole = count // 16 * 16
        for i in range(0, whole, 16):
            store(y + 4 * i, load_strided(x + i * x_step, x_step))
        for i in range(whole, count):
            store_f32(y + 4 * i, load_f32(x + i * x_step))
    else:
        for i in range(count):
            store_f32(y + i * y_step, load_f32(x + i * x_step))


def copy(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy from one strided layout to another."""
    rows, inner = word(step, 2), word(step, 3)
    axes, table = word(step, 6), word(step, 7)
    x_inner, y_inner = word(step, 4), word(step, 5)
    first, last = flat_share(rows * inner, thread, threads), flat_share(rows * inner, thread + 1, threads)
    while first < last:
        row, column = first // inner, first % inner
        x = word(step, 0) + _offset(table, axes, row, 1) + column * x_inner
        y = word(step, 1) + _offset(table, axes, row, 2) + column * y_inner
        here = min(inner - column, last - first)
        if axes == 0 or here < inner:
            _copy_run(x, x_inner, y, y_inner, here)
            first += here
            continue
        # Rows along the last outer axis, up to its end: computing an offset takes divisions, which cost more than a
        # short row.
        some = min(load_i64(table) - row % load_i64(table), (last - first) // inner)
        x_row, y_row = load_i64(table + 8), load_i64(table + 16)
        for _ in range(some):
            _copy_run(x, x_inner, y, y_inner, inner)
            x += x_row
            y += y_row
        first += some * inner


TRANSPOSE_ARGUMENTS = ("x", "y", "outer", "m", "n", "x_n", "y_m", "axes", "table")


def transpose(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``y[…, i, j] = x[…, j, i]``: contiguous along j in y and along i in x, rows `y_m` and `x_n` bytes apart."""
    m, n, x_n, y_m = word(step, 3), word(step, 4), word(step, 5), word(step, 6)
    axes, table = word(step, 7), word(step, 8)
    blocks = (m + 15) // 16
    room = scratch(control, thread)
    items = word(step, 2) * blocks
    for item in range(share(items, thread, threads), share(items, thread + 1, threads)):
        outer, i = item // blocks, item % blocks * 16
        x = word(step, 0) + _offset(table, axes, outer, 1) + 4 * i
        y = word(step, 1) + _offset(table, axes, outer, 2) + i * y_m
        rows = min(16, m - i)
        for j in range(0, n, 16):
            columns = min(16, n - j)
            if rows == 16 and columns == 16:
                transpose_block(x + j * x_n, x_n, 16, 16, y + 4 * j, y_m)
            else:
                transpose_block(x + j * x_n, x_n, columns, rows, room, 64)
                for row in range(rows):
                    store_part(y + row * y_m + 4 * j, load(room + 64 * row), columns)


ASSIGN_ARGUMENTS = ("x", "y", "count", "apply")


def assign(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Overwrite y by x, unless the number at address `apply` (0: none) is 0."""
    if word(step, 3) != 0:
        if load_f32(word(step, 3)) == 0:
            return
    first, last = flat_share(word(step, 2), thread, threads), flat_share(word(step, 2), thread + 1, threads)
    _copy_run(word(step, 0) + 4 * first, 4, word(step, 1) + 4 * first, 4, last - first)
