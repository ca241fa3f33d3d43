"""Mixtures: top-k of a gate's logits, the weighted sum of branches, and gates of single elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import allow_registered, with_kernels
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.maths import activate_by
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_i64, store_f32
from volumetric.devices.cpu.kernels.products import gated_value
from volumetric.devices.cpu.kernels.simd import load, splat, store
from volumetric.devices.cpu.kernels.step_words import last_row, number, slot_address, slot_stride, word

f32 = np.float32


@kernel
def largest_of_row(x, y, width, k):
    """Write the k largest of the row at `x` to `y`, the earlier of equals, and all NaN; the rest becomes -inf."""
    for i in range(width):
        value = load_f32(x + 4 * i)
        store_f32(y + 4 * i, value if np.isnan(value) else f32(-math.inf))
    limit = f32(math.inf)
    after = -1  # of those equal to the limit, the ones up to here are taken
    for _ in range(k):
        best = -1
        top = f32(-math.inf)
        for i in range(width):
            value = load_f32(x + 4 * i)
            open_ = value < limit or (value == limit and i > after)
            if open_ and (value > top or best < 0):
                best, top = i, value
        if best < 0:
            break
        store_f32(y + 4 * best, top)
        limit, after = top, best


LARGEST_ARGUMENTS = ("input", "output", "width", "k")


def keep_largest(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Leave the k largest of a row, see `largest_of_row`."""
    rows = last_row(step, control)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
        out = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
        largest_of_row(x, out, word(step, 2), word(step, 3))


GATE_ARGUMENTS = ("input", "factor", "output", "width", "limit", "up_offset")


def _gated_by(name: str) -> dict[str, Any]:
    """Return `gated_value` for an activation registered by a package."""
    return {"gated_value": kernel(with_kernels(gated_value, {"activate": activate_by(name)}))}


@allow_registered(_gated_by)
def gate_elements(activation: int, form: int) -> Callable[..., None]:
    """`gated_value` of `input` and `factor`, element by element."""

    def gated(step: Any, thread: Any, threads: Any, control: Any) -> None:
        rows = last_row(step, control)
        for row in range(rows * thread // threads, rows * (thread + 1) // threads):
            x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
            factor = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
            out = slot_address(control, word(step, 2)) + row * slot_stride(control, word(step, 2))
            for i in range(0, word(step, 3), 16):
                gate, up = load(x + 4 * i), load(factor + 4 * i)
                store(out + 4 * i, gated_value(activation, form, gate, up, number(step, 4), number(step, 5)))

    return gated


MIX_ARGUMENTS = ("weights", "branches", "count", "output", "width", "weighted")
"""`branches` is the address of the slots of `count` values; unless `weighted`, they are summed as they are."""


def mix_branches(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """``Σ weightᵢ · branchᵢ`` of each row; a branch of weight 0 is not read."""
    rows = last_row(step, control)
    for row in range(rows * thread // threads, rows * (thread + 1) // threads):
        weights = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0))
        out = slot_address(control, word(step, 3)) + row * slot_stride(control, word(step, 3))
        for i in range(0, word(step, 4), 16):
            total = splat(f32(0.0))
            for j in range(word(step, 2)):
                weight = load_f32(weights + 4 * j)
                if weight != f32(0.0):
                    slot = load_i64(word(step, 1) + 8 * j)
                    branch = slot_address(control, slot) + row * slot_stride(control, slot)
                    factor = weight if word(step, 5) != 0 else f32(1.0)
                    total = total + load(branch + 4 * i) * splat(factor)
            store(out + 4 * i, total)
