"""A causal convolution of each channel over the rows of a sequence, and column slices of wider rows.

Threads divide groups of sixteen channels of each sequence; each runs through the rows of a sequence alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import activate
from volumetric.devices.cpu.kernels.memory_access import load_i64
from volumetric.devices.cpu.kernels.row_cells import sequence_address, state_address
from volumetric.devices.cpu.kernels.simd import load
from volumetric.devices.cpu.kernels.step_words import COUNT_WORD, last_row, slot_address, slot_stride, word

COLUMNS_ARGUMENTS = ("input", "output", "start", "width")


def columns(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Copy columns of each row."""
    count = last_row(step, control)
    width = word(step, 3)
    for row in range(count * thread // threads, count * (thread + 1) // threads):
        x = slot_address(control, word(step, 0)) + row * slot_stride(control, word(step, 0)) + 4 * word(step, 2)
        out = slot_address(control, word(step, 1)) + row * slot_stride(control, word(step, 1))
        for i in range(0, width, 16):
            store_part(out + 4 * i, load_part(x + 4 * i, width - i), width - i)


CONV_ARGUMENTS = ("input", "start", "output", "channels", "taps", "weights", "bias", "state")
"""`weights` ``[taps, channels]`` and `bias` are padded to whole vectors; no bias is zeros."""


def causal_conv(code: int) -> Callable[..., None]:
    """The convolution, with activation number `code` of its result."""

    def causal_conv(step: Any, thread: Any, threads: Any, control: Any) -> None:
        channels, taps = word(step, 3), word(step, 4)
        blocks = (channels + 15) // 16
        count = load_i64(control + 8 * COUNT_WORD) * blocks
        stride, out_stride = slot_stride(control, word(step, 0)), slot_stride(control, word(step, 2))
        for share in range(count * thread // threads, count * (thread + 1) // threads):
            piece = sequence_address(control, share // blocks)
            at = share % blocks * 16
            left = channels - at
            first, last = load_i64(piece), load_i64(piece + 8)
            x = slot_address(control, word(step, 0)) + 4 * (word(step, 1) + at)
            out = slot_address(control, word(step, 2)) + 4 * at
            past = state_address(control, share // blocks, word(step, 7)) + 4 * at
            weights = word(step, 5) + 4 * at
            for row in range(first, last):
                total = load(word(step, 6) + 4 * at)
                for k in range(taps):
                    source = row + k - (taps - 1)
                    tap = load(weights + 64 * blocks * k)
                    if source >= first:
                        total = total + tap * load_part(x + source * stride, left)
                    else:
                        total = total + tap * load_part(past + 4 * channels * (source - first + taps - 1), left)
                store_part(out + row * out_stride, activate(code, total), left)
            for k in range(taps - 1):
                source = last + k - (taps - 1)
                if source >= first:
                    store_part(past + 4 * channels * k, load_part(x + source * stride, left), left)
                else:  # the source is after the target
                    moved = load_part(past + 4 * channels * (source - first + taps - 1), left)
                    store_part(past + 4 * channels * k, moved, left)

    return causal_conv
