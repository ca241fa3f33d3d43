"""Baselines without learning: the last visible position of the ball, its linear extrapolation, and an exact filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.pursuit.world import (
    BELLS,
    CELLS,
    CUE,
    IMAGE,
    NOISE,
    PHASES,
    PLAN,
    SIDE,
    STAY,
    TURN,
    behind_curtain,
    cell_of,
)

_SEEN: Final = 0.6
"""Brightness above which a cell shows the ball: noise exceeds it once in 10⁹ times."""


def last_seen(rows: Array) -> Array:
    """Return the last visible cell of the ball, ``[samples, T]``."""
    return _follow_ball(rows, goes_on=False)


def straight_on(rows: Array) -> Array:
    """Return the next cell in the direction of the last two consecutive visible frames, also while hidden."""
    return _follow_ball(rows, goes_on=True)


BASELINES: Final[Mapping[str, Callable[[Array], Array]]] = MappingProxyType(
    {"last seen": last_seen, "straight on": straight_on}
)
"""Name → next cells ``[samples, T]`` from rows ``[samples, T, 131]``."""


def _follow_ball(rows: Array, *, goes_on: bool) -> Array:
    samples, length, _ = rows.shape
    place, pace = np.full((samples, 2), SIDE // 2), np.zeros((samples, 2), np.int64)
    before, was = np.zeros(samples, np.bool_), place
    guesses = np.zeros((samples, length), np.int64)
    for t in range(length):
        image = rows[:, t, IMAGE]
        visible = image.max(1) > _SEEN
        now = np.stack(np.divmod(image.argmax(1), SIDE), 1)
        pace = np.where((visible & before)[:, None], now - was, pace)
        place = np.where(visible[:, None], now, place)
        before, was = visible, now
        if goes_on:
            ahead = (place + pace) % PHASES
            ahead = np.where(ahead < SIDE, ahead, PHASES - ahead)
            pace = np.where((place + pace < 0) | (place + pace >= SIDE), -pace, pace)
            place = ahead
        guesses[:, t] = SIDE * place[:, 0] + place[:, 1]
    return guesses


def exact(rows: Array) -> Array:
    """Return the most probable next cell of each row, ``[samples, T]``, by Bayes' rule over the ball's 14 × 14 phases.

    This is a hidden Markov filter with the true parameters: no program has a higher expected accuracy.
    """
    samples, length, _ = rows.shape
    down, aside = np.meshgrid(np.arange(PHASES), np.arange(PHASES), indexing="ij")
    cells = cell_of(down, aside)
    back = -np.arange(PHASES) % PHASES
    belief = np.full((samples, PHASES, PHASES), PHASES**-2.0)
    home = np.zeros(samples, np.int64)
    left = np.zeros(samples, np.int64)
    guesses = np.zeros((samples, length), np.int64)
    hidden = behind_curtain(cells)
    inside = (cells.reshape(-1, 1) == np.arange(CELLS)).astype(np.float64)
    for t in range(length):
        home = np.where(rows[:, t, CUE] > 0, rows[:, t, PLAN].argmax(1), home)
        starts = (cells == home[:, None, None]) / 1.0
        starts /= starts.sum((1, 2), keepdims=True)
        image = rows[:, t, IMAGE].astype(np.float64)
        evidence = np.where(hidden, 0.0, (2 * image - 1)[:, cells] / (2 * NOISE**2))
        posterior = belief * np.exp(evidence - evidence.max((1, 2), keepdims=True))
        posterior /= posterior.sum((1, 2), keepdims=True)
        turned = (posterior[:, back] + posterior[:, :, back]) / 2
        moved = np.roll((1 - TURN) * posterior + TURN * turned, (1, 1), (1, 2))
        at_home, rings = (left > 0)[:, None, None], rows[:, t, BELLS] > 0
        belief = np.where(at_home, starts, moved)
        left = np.where(rings, STAY, np.maximum(left - 1, 0))
        guesses[:, t] = np.where(left > 0, home, (belief.reshape(samples, -1) @ inside).argmax(1))
    return guesses
