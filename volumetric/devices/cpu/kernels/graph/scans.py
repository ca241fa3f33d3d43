"""A linear recurrence over the steps of sequences, sixteen lanes at a time.

Threads divide the lanes of all sequences; each runs through the steps alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.memory_access import load_f32
from volumetric.devices.cpu.kernels.simd import splat
from volumetric.devices.cpu.kernels.step_words import word

f32 = np.float32

LINEAR_SCAN_ARGUMENTS = ("u", "a", "start", "keep", "s", "batch", "length", "width")
"""Addresses of ``[batch, length, width]``, of the factors of each step or of all, of s before the first step, of the
keep factors of steps, of the output."""


_STRETCH = 128
"""Vectors of 16 columns that go through all steps together: the first-level cache holds a row of each operand."""


def linear_scan(reverse: int, keep: int, each: int) -> Callable[..., None]:
    """The recurrence, from the last step on if `reverse`; `each`: factors differ by step."""

    def linear_scan(step: Any, thread: Any, threads: Any, control: Any) -> None:
        length, width = word(step, 6), word(step, 7)
        blocks = (width + 15) // 16
        count = word(step, 5) * blocks
        zero = splat(f32(0.0))
        part = share(count, thread, threads)
        end = share(count, thread + 1, threads)
        while part < end:
            # A range of columns, step by step: memory is read sequentially, and the previous step is still in the
            # cache.
            row = part // blocks
            first = part % blocks
            some = min(blocks - first, end - part, _STRETCH)
            before = word(step, 2) + 4 * row * width
            for i in range(length):
                t = row * length + i
                read = t  # the step whose factor multiplies the previous state
                if reverse:
                    t = row * length + length - 1 - i
                    read = t + 1
                keep_factor = f32(1.0)
                if keep and not (i == 0 and reverse):
                    keep_factor = load_f32(word(step, 3) + 4 * read)
                out = word(step, 4) + 4 * t * width
                for at in range(16 * first, 16 * (first + some), 16):
                    left = width - at
                    passed = zero
                    if keep_factor != f32(0.0) and not (i == 0 and reverse):
                        factors = word(step, 1) + 4 * at
                        if each:
                            factors += 4 * read * width
                        passed = load_part(factors, left) * load_part(before + 4 * at, left)
                        if keep:
                            passed = passed * splat(keep_factor)
                    store_part(out + 4 * at, passed + load_part(word(step, 0) + 4 * (t * width + at), left), left)
                before = out
            part += some

    return linear_scan


ROTATE_SCAN_ARGUMENTS = ("u", "g", "phi", "start", "keep", "s", "batch", "length", "width")
"""Addresses of ``[batch, length, 2 width]``, of the rotations, of s before the first step, of the keep factors of
steps, of the output."""


def rotate_scan(reverse: int, keep: int) -> Callable[..., None]:
    """The recurrence of pairs; if `reverse`, from the last step on and rotating back."""

    def rotate_scan(step: Any, thread: Any, threads: Any, control: Any) -> None:
        length, width = word(step, 7), word(step, 8)
        blocks = (width + 15) // 16
        count = word(step, 6) * blocks
        zero = splat(f32(0.0))
        for part in range(share(count, thread, threads), share(count, thread + 1, threads)):
            row = part // blocks
            at = part % blocks * 16
            left = width - at
            second = 4 * width
            g = load_part(word(step, 1) + 4 * at, left)
            phi = load_part(word(step, 2) + 4 * at, left)
            a = zero
            b = zero
            if reverse:
                phi = zero - phi
            else:
                start = word(step, 3) + 4 * (2 * row * width + at)
                a = load_part(start, left)
                b = load_part(start + second, left)
            for i in range(length):
                t = row * length + i
                read = t  # the step that may keep the previous state
                if reverse:
                    t = row * length + length - 1 - i
                    read = t + 1
                turned_a = g * a - phi * b
                turned_b = phi * a + g * b
                if keep and not (reverse and i == 0):
                    keep_factor = load_f32(word(step, 4) + 4 * read)
                    turned_a = turned_a * splat(keep_factor)
                    turned_b = turned_b * splat(keep_factor)
                    if keep_factor == f32(0.0):
                        turned_a = zero
                        turned_b = zero
                u = word(step, 0) + 4 * (2 * t * width + at)
                s = word(step, 5) + 4 * (2 * t * width + at)
                a = turned_a + load_part(u, left)
                b = turned_b + load_part(u + second, left)
                store_part(s, a, left)
                store_part(s + second, b, left)

    return rotate_scan
