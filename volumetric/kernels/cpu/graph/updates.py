"""Optimiser steps, element by element; formulas as in `volumetric.train.optim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.kernels.cpu.graph.lanes import load_part, root, store_part
from volumetric.kernels.cpu.graph.reduce import CHUNK, square_sum
from volumetric.kernels.cpu.graph.shares import flat_share, share
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.memory import load_f32, store_f32
from volumetric.kernels.cpu.simd import largest, splat, total
from volumetric.kernels.cpu.steps import number, word

OPTIMISERS = ("sgd", "momentum", "rmsprop", "adam", "adamw")
"""Position = the code of an optimiser."""

_SGD, _MOMENTUM, _RMSPROP, _ADAM, _ADAMW = range(len(OPTIMISERS))

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
    "decay",
    "p0",  # momentum: momentum; rmsprop: alpha; adam, adamw: beta1
    "q0",  # momentum: 1 - dampening; the others: 1 - p0
    "p1",  # rmsprop: momentum; adam, adamw: beta2
    "q1",  # 1 - p1
    "eps",
)

f32 = np.float32


@kernel
def _keep(step, i, left):
    """Copy what is not updated in place."""
    for j in (0, 2, 3, 4):
        target = word(step, 6 + (j - 1 if j > 0 else 0))
        if target != 0 and target != word(step, j):
            store_part(target + 4 * i, load_part(word(step, j) + 4 * i, left), left)


def update(code: int, nesterov: int, centered: int, velocity: int, trial: int) -> Callable[..., None]:
    """One step of optimiser number `code`; the flags are those of momentum and rmsprop.

    A trial writes nothing but the sums of squares of the new weight, which are finite where the weight is.
    """

    def update(step: Any, thread: Any, threads: Any, control: Any) -> None:
        count, scalars = word(step, 10), word(step, 5)
        moves = load_f32(scalars + 16) != 0
        rate, factor = splat(load_f32(scalars)), splat(load_f32(scalars + 4))
        third, fourth = load_f32(scalars + 8), load_f32(scalars + 12)
        decay, eps = splat(number(step, 11)), splat(number(step, 16))
        p0, q0, p1, q1 = (
            splat(number(step, 12)),
            splat(number(step, 13)),
            splat(number(step, 14)),
            splat(number(step, 15)),
        )
        piece, end = 0, 1
        if trial:
            chunks = (count + CHUNK - 1) // CHUNK
            piece, end = share(chunks, thread, threads), share(chunks, thread + 1, threads)
        while piece < end:
            first, last = flat_share(count, thread, threads), flat_share(count, thread + 1, threads)
            if trial:
                first, last = piece * CHUNK, min((piece + 1) * CHUNK, count)
            if not moves:
                if trial:
                    store_f32(word(step, 6) + 4 * piece, square_sum(word(step, 0) + 4 * first, last - first))
                else:
                    for i in range(first, last, 16):
                        _keep(step, i, last - i)
                piece += 1
                continue
            sums = splat(f32(0.0))
            for i in range(first, last, 16):
                left = last - i
                w = load_part(word(step, 0) + 4 * i, left)
                g = load_part(word(step, 1) + 4 * i, left) * factor
                if code == _ADAM or code == _ADAMW:
                    if code == _ADAM:
                        g = g + decay * w
                    m = p0 * load_part(word(step, 2) + 4 * i, left) + q0 * g
                    v = p1 * load_part(word(step, 3) + 4 * i, left) + q1 * g * g
                    move = rate * splat(third) * m / (root(v) * splat(fourth) + eps)
                    if code == _ADAMW:
                        w = w * (splat(f32(1.0)) - rate * decay)
                    w = w - move
                    if not trial:
                        store_part(word(step, 7) + 4 * i, m, left)
                        store_part(word(step, 8) + 4 * i, v, left)
                else:
                    g = g + decay * w
                    move = g
                    if code == _MOMENTUM:
                        v = g
                        if third == 0:
                            v = p0 * load_part(word(step, 2) + 4 * i, left) + q0 * g
                        if not trial:
                            store_part(word(step, 7) + 4 * i, v, left)
                        move = g + p0 * v if nesterov else v
                    elif code == _RMSPROP:
                        square = p0 * load_part(word(step, 2) + 4 * i, left) + q0 * g * g
                        if not trial:
                            store_part(word(step, 7) + 4 * i, square, left)
                        spread = square
                        if centered:
                            mean = p0 * load_part(word(step, 3) + 4 * i, left) + q0 * g
                            if not trial:
                                store_part(word(step, 8) + 4 * i, mean, left)
                            spread = largest(spread - mean * mean, splat(f32(0.0)))
                        move = g / (root(spread) + eps)
                        if velocity:
                            # The velocity is the last slot: the second one, or the third behind the mean.
                            move = p1 * load_part(word(step, 4 if centered else 3) + 4 * i, left) + move
                            if not trial:
                                store_part(word(step, 9 if centered else 8) + 4 * i, move, left)
                    w = w - rate * move
                if trial:
                    sums = sums + w * w
                else:
                    store_part(word(step, 6) + 4 * i, w, left)
            if trial:
                store_f32(word(step, 6) + 4 * piece, total(sums))
            piece += 1

    return update
