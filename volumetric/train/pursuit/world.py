"""The pursuit world, frame by frame, and its observations."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.train.problems import Problem

SIDE: Final = 8
"""Cells of a frame in each direction."""
PHASES: Final = 2 * (SIDE - 1)
"""Number of phases per axis: frames in which the ball goes to a wall and back, for position and direction."""
HIDDEN: Final = (3, 4)
"""Columns of cells that are hidden."""
NOISE: Final = 0.05
"""Standard deviation of each cell of a frame."""
TURN: Final = 1 / 40
"""Probability of a turn before each step."""
SHOWN: Final = 1 / 24
"""Probability of a new plan, with another home, in each frame on the way."""
BELL: Final = 1 / 48
"""Probability of the bell in each of these frames."""
STAY: Final = 6
"""Frames at home after it."""
CELLS: Final = SIDE * SIDE
IMAGE: Final = slice(0, CELLS)
PLAN: Final = slice(CELLS, 2 * CELLS)
RINGS: Final = 2 * CELLS
CUE: Final = RINGS + 1
BELLS: Final = RINGS + 2
"""Columns of a row: the frame, the plan with the home, whether the bell rings; and, as events, plan and bell again."""
COLUMNS: Final = 2 * CELLS + 3
_SPLITS: Final = {"train": 0, "validation": 1, "test": 2}
_STREAM: Final = 0x9B2507


def pursuit(seed: int = 0, samples: int = 256, length: int = 96, *, split: str = "train", epoch: int = 0) -> Problem:
    """Predict in which of 8 × 8 cells a ball will be in the next frame.

    The ball moves diagonally by one cell in each frame and bounces off walls. Before a step it turns, in one axis, with
    probability 1/40. Frames have noise, 0.05 in each cell. The ball's cell has 1 more, unless it is in the two middle
    columns, which are behind a curtain. A plan shows the ball's home: in the first frame, and a new one in one of 24
    frames on its way. A bell rings in one of 48: then the ball is at home from the next frame on, for six hidden
    frames, and leaves in any of four directions. So the task needs a belief of position and direction while the ball is
    hidden, and a memory of the last plan. Turns, bells and directions from home are random: `exact` has the best
    possible accuracy.

    Returns
    -------
    Problem : rows ``[samples, length, 131]``, float32: the frame, row by row, the plan, the bell, and 1 where the plan
        is shown and 1 where the bell rings, as events for clocks; targets are cells, ``8 · row + column``

    Raises
    ------
    SpecError : a number is too small, or the split is unknown
    """
    for name, value, least in (("seed", seed, 0), ("samples", samples, 1), ("length", length, 1), ("epoch", epoch, 0)):
        if value < least:
            raise SpecError(f"pursuit: {name} must be at least {least}, got {value}")
    if split not in _SPLITS:
        raise SpecError(f"pursuit: unknown split {split!r}", hint=f"one of {', '.join(_SPLITS)}")
    random = rng.generator(seed, _STREAM, _SPLITS[split], epoch)
    cells, visible, plans, bells, homes = _run(random, samples, length)
    rows = np.zeros((samples, length, COLUMNS), np.float32)
    rows[..., IMAGE] = NOISE * random.standard_normal((samples, length, CELLS), np.float32)
    at = np.nonzero(visible[:, :length])
    rows[(*at, cells[:, :length][at])] += 1
    at = np.nonzero(plans)
    rows[(*at, CELLS + homes[at])] = 1
    rows[..., CUE] = plans
    rows[..., RINGS] = rows[..., BELLS] = bells
    resets = np.zeros((samples, length), np.uint8)
    resets[:, 0] = 1
    return Problem(
        inputs=rows,
        targets=cells[:, 1:],
        classes=tuple(f"{y}, {x}" for y in range(SIDE) for x in range(SIDE)),
        resets=resets,
    )


def cell_of(down: Array, aside: Array) -> Array:
    """Return the cell of row and column phases."""
    y, x = (np.where(of < SIDE, of, PHASES - of) for of in (down, aside))
    return SIDE * y + x


def behind_curtain(cells: Array) -> Array:
    """Return which cells are behind the curtain."""
    return np.isin(cells % SIDE, HIDDEN)


def at_home(rows: Array) -> Array:
    """Return whether the ball is at home in the next frame, ``[samples, T]``: only the last plan has the cell."""
    bells = rows[..., BELLS] > 0
    is_home = np.zeros(bells.shape, np.bool_)
    for late in range(STAY):
        is_home[:, late:] |= bells[:, : bells.shape[1] - late]
    return is_home


def _run(random: np.random.Generator, samples: int, length: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return cells and visibility of the ball, ``[samples, length + 1]``; plans, bells, homes ``[samples, length]``.

    A frame with a plan has no bell, and frames at home have neither.
    """
    free = np.flatnonzero(~behind_curtain(np.arange(CELLS)))
    home = np.zeros(samples, np.int64)
    phases = random.integers(0, PHASES, (samples, 2))  # down, aside
    cells, visible = np.zeros((samples, length + 1), np.int64), np.zeros((samples, length + 1), np.bool_)
    plans, bells = np.zeros((2, samples, length), np.bool_)
    homes = np.zeros((samples, length), np.int64)
    left = np.zeros(samples, np.int64)  # remaining frames at home, including the present one
    for t in range(length + 1):
        here = cell_of(*phases.T)
        cells[:, t] = np.where(left > 0, home, here)
        visible[:, t] = (left == 0) & ~behind_curtain(here)
        if t == length:
            break
        chance = random.random(samples)
        plans[:, t] = (left == 0) & ((chance < SHOWN) | (t == 0))
        bells[:, t] = (left == 0) & ~plans[:, t] & (chance > 1 - BELL)
        home = homes[:, t] = np.where(plans[:, t], free[random.integers(0, len(free), samples)], home)
        # On the way: a possible turn and a step; from home in any direction.
        turns, axis = random.random(samples) < TURN, random.integers(0, 2, samples)
        phases = np.where(turns[:, None] & (axis[:, None] == np.arange(2)), -phases, phases)
        begun = np.stack(np.divmod(home, SIDE), 1) * random.choice([-1, 1], (samples, 2))
        phases = np.where((left == 1)[:, None], begun, phases + 1) % PHASES
        left = np.where(bells[:, t], STAY, np.maximum(left - 1, 0))
    return cells, visible, plans, bells, homes
