"""Optimiser steps, element by element, generated from `volumetric.formula.optimisers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import allow_registered, one_of
from volumetric.devices.cpu.kernels.graph.reduce import CHUNK, square_sum
from volumetric.devices.cpu.kernels.graph.thread_shares import flat_share, share
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import load_part, store_part
from volumetric.devices.cpu.kernels.maths import WORDS
from volumetric.devices.cpu.kernels.memory_access import load_f32, store_f32
from volumetric.devices.cpu.kernels.simd import splat, total
from volumetric.devices.cpu.kernels.step_words import number, word
from volumetric.formula import optimisers
from volumetric.formula.expression import Expression, substitute, variable

_SLOTS = [f"slot{i}" for i in range(optimisers.SLOTS)]
_FIELDS = [f"field{i}" for i in range(optimisers.FIELDS)]

UPDATE_ARGUMENTS = (
    "weight",
    "grad",
    "slot0",
    "slot1",
    "slot2",
    "scalars",
    "new_weight",  # of a trial: a sum of squares for each chunk of the new weight
    "new0",
    "new1",
    "new2",
    "count",
    *_FIELDS,
)

f32 = np.float32


@kernel
def _keep(step, i, left):
    """Copy slots that are not updated in place."""
    for j in (0, 2, 3, 4):
        target = word(step, 6 + (j - 1 if j > 0 else 0))
        if target != 0 and target != word(step, j):
            store_part(target + 4 * i, load_part(word(step, j) + 4 * i, left), left)


@kernel
def _field(step, i):
    return splat(number(step, 11 + i))


def _update_of_slots(form: str) -> list[Expression]:
    """The new weight and three slots, from numbered slots and numbered fields."""
    weight, after = optimisers.step_of(form)
    names = dict(zip((*after, *optimisers.fields_of(form)), (*_SLOTS[: len(after)], *_FIELDS), strict=False))
    places = {variable(name): variable(place) for name, place in names.items()}
    return [*(substitute(each, places) for each in (weight, *after.values())), *map(variable, _SLOTS[len(after) :])]


FORMS = tuple(optimisers.FORMS)
"""Index = the code of an optimiser's form."""

_ARGUMENTS = (*_FIELDS, "rate", "first", "second", "w", "g", *_SLOTS)
_moved = one_of(__name__, "moved", " ".join(_ARGUMENTS), list(map(_update_of_slots, FORMS)), WORDS)
"""(code, …) → the new weight and three slots.

LLVM puts the operand of a sum first that follows from earlier arguments, and of two products fuses the first with the
sum: where formulas are written in the order of these arguments, nothing is swapped.
"""


def _apply_update(form: str) -> dict[str, Any]:
    """Return `_moved` for an optimiser form registered by a package."""
    return {"_moved": one_of(__name__, "moved", " ".join(_ARGUMENTS), [_update_of_slots(form)], WORDS)}


@allow_registered(_apply_update)
def update(code: int, slots: int, trial: int) -> Callable[..., None]:
    """One step of form number `code` of an optimiser, with so many slots.

    A trial writes only the sums of squares of the new weight, which are finite if the weight is.
    """

    def update(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count, scalars = word(step, 10), word(step, 5)
        moves = load_f32(scalars + 16) != 0
        rate, factor = splat(load_f32(scalars)), splat(load_f32(scalars + 4))
        first, second = splat(load_f32(scalars + 8)), splat(load_f32(scalars + 12))
        f0, f1, f2, f3 = _field(step, 0), _field(step, 1), _field(step, 2), _field(step, 3)
        f4, f5, f6, f7 = _field(step, 4), _field(step, 5), _field(step, 6), _field(step, 7)
        piece, end = 0, 1
        if trial:
            chunks = (count + CHUNK - 1) // CHUNK
            piece, end = share(chunks, thread, threads), share(chunks, thread + 1, threads)
        while piece < end:
            begin, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
            if trial:
                begin, last = piece * CHUNK, min((piece + 1) * CHUNK, count)
            if not moves:
                if trial:
                    store_f32(word(step, 6) + 4 * piece, square_sum(word(step, 0) + 4 * begin, last - begin))
                else:
                    for i in range(begin, last, 16):
                        _keep(step, i, last - i)
                piece += 1
                continue
            sums = splat(f32(0.0))
            for i in range(begin, last, 16):
                left = last - i
                w = load_part(word(step, 0) + 4 * i, left)
                g = load_part(word(step, 1) + 4 * i, left) * factor
                s0 = load_part(word(step, 2) + 4 * i, left) if slots > 0 else w
                s1 = load_part(word(step, 3) + 4 * i, left) if slots > 1 else w
                s2 = load_part(word(step, 4) + 4 * i, left) if slots > 2 else w
                w, s0, s1, s2 = _moved(code, f0, f1, f2, f3, f4, f5, f6, f7, rate, first, second, w, g, s0, s1, s2)
                if trial:
                    sums = sums + w * w
                    continue
                if slots > 0:
                    store_part(word(step, 7) + 4 * i, s0, left)
                if slots > 1:
                    store_part(word(step, 8) + 4 * i, s1, left)
                if slots > 2:
                    store_part(word(step, 9) + 4 * i, s2, left)
                store_part(word(step, 6) + 4 * i, w, left)
            if trial:
                store_f32(word(step, 6) + 4 * piece, total(sums))
            piece += 1

    return update
