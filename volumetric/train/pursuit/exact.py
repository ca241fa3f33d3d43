"""What can be known: the exact probabilities of where the ball is, from all rows so far."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.train.pursuit.world import (
    BELLS,
    CELLS,
    CUE,
    IMAGE,
    NOISE,
    PHASES,
    PLAN,
    STAY,
    TURN,
    cell_of,
    covered,
)


def exact(rows: Array) -> Array:
    """Return the likeliest next cell of each row, ``[samples, T]``, by Bayes' rule over the ball's 14 × 14 phases.

    A filter of a hidden Markov model that knows the world's numbers: no program can be right more often, but by luck.
    """
    samples, length, _ = rows.shape
    down, aside = np.meshgrid(np.arange(PHASES), np.arange(PHASES), indexing="ij")
    cells = cell_of(down, aside)
    back = -np.arange(PHASES) % PHASES
    belief = np.full((samples, PHASES, PHASES), PHASES**-2.0)
    home = np.zeros(samples, np.int64)
    left = np.zeros(samples, np.int64)
    made = np.zeros((samples, length), np.int64)
    hidden = covered(cells)
    inside = (cells.reshape(-1, 1) == np.arange(CELLS)).astype(np.float64)
    for t in range(length):
        home = np.where(rows[:, t, CUE] > 0, rows[:, t, PLAN].argmax(1), home)
        starts = (cells == home[:, None, None]) / 1.0
        starts /= starts.sum((1, 2), keepdims=True)
        image = rows[:, t, IMAGE].astype(np.float64)
        told = np.where(hidden, 0.0, (2 * image - 1)[:, cells] / (2 * NOISE**2))
        seen = belief * np.exp(told - told.max((1, 2), keepdims=True))
        seen /= seen.sum((1, 2), keepdims=True)
        turned = (seen[:, back] + seen[:, :, back]) / 2
        moved = np.roll((1 - TURN) * seen + TURN * turned, (1, 1), (1, 2))
        at_home, rings = (left > 0)[:, None, None], rows[:, t, BELLS] > 0
        belief = np.where(at_home, starts, moved)
        left = np.where(rings, STAY, np.maximum(left - 1, 0))
        made[:, t] = np.where(left > 0, home, (belief.reshape(samples, -1) @ inside).argmax(1))
    return made
