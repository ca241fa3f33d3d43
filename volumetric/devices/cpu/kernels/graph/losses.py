"""Losses: terms, their weights and the gradient of their sum, in partial sums that do not depend on threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import allow_registered, one_of
from volumetric.devices.cpu.kernels.graph.thread_shares import share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, load_part_or, store_part, where_equal
from volumetric.devices.cpu.kernels.maths import WORDS, exp, log
from volumetric.devices.cpu.kernels.memory_access import load_f32, load_f64, load_i32, store_f32, store_f64
from volumetric.devices.cpu.kernels.simd import first_lanes, largest, peak, splat, total
from volumetric.devices.cpu.kernels.step_words import number, word
from volumetric.formula import losses
from volumetric.formula.expression import Expression, substitute, variables

f32 = np.float32

CHUNK = 4096
"""Elements of one partial sum."""

ELEMENT_LOSS_ARGUMENTS = ("prediction", "target", "weights", "slope", "partial", "count", "field0", "field1")
"""`weights` may be 0 = none. `partial` holds a pair (sum, weight) of float64 for each chunk."""


def _term_of_fields(of: losses.LossTerm) -> list[Expression]:
    """Term and derivative of numbered fields."""
    places = dict(zip(variables(" ".join(of.fields)), variables("field0 field1"), strict=False))
    return [substitute(part, places) for part in (of.value, of.slope)]


TERMS = tuple(losses.TERMS.own)
"""Index = the code of an element-wise loss."""

_term = one_of(__name__, "term", "y t field0 field1", list(map(_term_of_fields, losses.TERMS.own.values())), WORDS)
"""(code, prediction, target, …) → the term of loss number `code` of `TERMS`, and its derivative."""


def _term_by(name: str) -> dict[str, Any]:
    """Return `_term` for a loss registered by a package."""
    return {"_term": one_of(__name__, "term", "y t field0 field1", [_term_of_fields(losses.TERMS[name])], WORDS)}


@allow_registered(_term_by)
def element_loss(code: int) -> Callable[..., None]:
    """Loss number `code` of `TERMS`."""

    def element_loss(step: Any, thread: Any, threads: Any, control: Any) -> None:
        weights, count = word(step, 2), word(step, 5)
        field0, field1 = splat(number(step, 6)), splat(number(step, 7))
        zero = splat(f32(0.0))
        chunks = (count + CHUNK - 1) // CHUNK
        for chunk in range(share(chunks, thread, threads), share(chunks, thread + 1, threads)):
            last = min(count, (chunk + 1) * CHUNK)
            sums = zero
            weight = zero
            for i in range(chunk * CHUNK, last, 16):
                left = last - i
                y = load_part(word(step, 0) + 4 * i, left)
                t = load_part(word(step, 1) + 4 * i, left)
                value, slope = _term(code, y, t, field0, field1)
                if weights != 0:
                    w = load_part(weights + 4 * i, left)
                    value = value * w
                    slope = slope * w
                    weight = weight + w
                sums = sums + first_lanes(left, value, zero)
                store_part(word(step, 3) + 4 * i, slope, left)
            here = word(step, 4) + 16 * chunk
            store_f64(here, np.float64(total(sums)))
            store_f64(here + 8, np.float64(total(weight)) if weights != 0 else np.float64(last - chunk * CHUNK))

    return element_loss


CLASS_LOSS_ARGUMENTS = (
    "prediction",
    "target",
    "weights",
    "slope",
    "partial",
    "rows",
    "classes",
    "smoothing",
    "ignored",
)
"""As above, with one pair for each row."""


@kernel
def _soft_target(soft, target, row, classes, i, left, hot, flat):
    """Up to 16 numbers of the target's distribution, smoothed."""
    if soft:
        return load_part(target + 4 * (row * classes + i), left) * hot + flat
    chosen = np.int64(load_i32(target + 4 * row)) - i
    zero = splat(f32(0.0))
    return first_lanes(chosen + 1, first_lanes(chosen, zero, hot), zero) + flat


def class_loss(soft: int) -> Callable[..., None]:
    """Cross entropy of rows of logits; targets are distributions if `soft`, else class ids."""

    def class_loss(step: Any, thread: Any, threads: Any, control: Any) -> None:
        target, weights, rows, classes = word(step, 1), word(step, 2), word(step, 5), word(step, 6)
        smoothing = number(step, 7)
        hot = splat(f32(1.0) - smoothing)
        flat = splat(smoothing / f32(classes))
        zero = splat(f32(0.0))
        lowest = splat(f32(-math.inf))
        for row in range(share(rows, thread, threads), share(rows, thread + 1, threads)):
            z = word(step, 0) + 4 * row * classes
            out = word(step, 3) + 4 * row * classes
            here = word(step, 4) + 16 * row
            weight = load_f32(weights + 4 * row) if weights != 0 else f32(1.0)
            if not soft:
                if load_i32(target + 4 * row) == word(step, 8):
                    weight = f32(0.0)
            store_f64(here, 0.0)
            store_f64(here + 8, np.float64(weight))
            if weight == 0:
                for i in range(0, classes, 16):
                    store_part(out + 4 * i, zero, classes - i)
                continue
            top = lowest
            for i in range(0, classes, 16):
                top = largest(top, load_part_or(z + 4 * i, classes - i, lowest))
            shift = splat(peak(top))
            sums = zero
            for i in range(0, classes, 16):
                sums = sums + exp(load_part_or(z + 4 * i, classes - i, lowest) - shift)
            offset = splat(peak(log(splat(total(sums)))))
            values = zero
            mass = zero
            for i in range(0, classes, 16):
                left = classes - i
                q = first_lanes(left, _soft_target(soft, target, row, classes, i, left, hot, flat), zero)
                logp = load_part(z + 4 * i, left) - shift - offset
                values = values + where_equal(q, zero, zero, q * logp)
                mass = mass + q
            store_f64(here, -np.float64(total(values)) * np.float64(weight))
            factor = splat(weight)
            whole = splat(total(mass))
            for i in range(0, classes, 16):
                left = classes - i
                q = _soft_target(soft, target, row, classes, i, left, hot, flat)
                p = exp(load_part(z + 4 * i, left) - shift - offset)
                store_part(out + 4 * i, (p * whole - q) * factor, left)

    return class_loss


PAIR_SUM_ARGUMENTS = ("partial", "pairs", "total", "count")


def pair_sum(step: Any, thread: Any, threads: Any, control: Any) -> None:
    """Sums of the first and of the second numbers of float64 pairs."""
    if thread == 0:
        first = 0.0
        second = 0.0
        for i in range(word(step, 1)):
            first += load_f64(word(step, 0) + 16 * i)
            second += load_f64(word(step, 0) + 16 * i + 8)
        store_f32(word(step, 2), f32(first))
        store_f32(word(step, 3), f32(second))
