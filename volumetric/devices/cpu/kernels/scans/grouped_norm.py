"""RMS norms of equal parts of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.prepare import inverse_root, square_sum
from volumetric.devices.cpu.kernels.simd import load, splat
from volumetric.devices.cpu.kernels.step_words import last_row, number, slot_address, slot_stride, word

f32 = np.float32

GROUPED_NORM_ARGUMENTS = ("input", "output", "width", "groups", "eps", "weight")


def grouped_norm(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Each part divided by its own root mean square, then times the gain, which is as wide as the row."""
    count = last_row(step, control)
    size = word(step, 2) // word(step, 3)
    for row in range(count * thread // threads, count * (thread + 1) // threads):
        for group in range(word(step, 3)):
            x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0)) + 4 * size * group
            out = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1)) + 4 * size * group
            gain = word(step, 5) + 4 * size * group
            scale = splat(inverse_root(square_sum(x, size) / f32(size), number(step, 4)))
            for i in range(0, size, 16):
                store_part(out + 4 * i, load_part(x + 4 * i, size - i) * scale * load(gain + 4 * i), size - i)
