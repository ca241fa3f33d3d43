"""What is known without learning: the last place where the ball was seen, and the straight way on from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from volumetric._typing import Array
from volumetric.train.pursuit.world import IMAGE, PHASES, SIDE

_SEEN: Final = 0.6
"""A brighter cell shows the ball: noise is that far from 0 once in 10⁹ times."""


def last_seen(rows: Array) -> Array:
    """Return the cell where the ball was seen last, ``[samples, T]``."""
    return _followed(rows, goes_on=False)


def straight_on(rows: Array) -> Array:
    """Return the cell ahead on the way that the last two frames in a row with the ball have shown, unseen too."""
    return _followed(rows, goes_on=True)


BASELINES: Final[Mapping[str, Callable[[Array], Array]]] = MappingProxyType(
    {"last seen": last_seen, "straight on": straight_on}
)
"""Name → next cells ``[samples, T]`` from rows ``[samples, T, 131]``."""


def _followed(rows: Array, *, goes_on: bool) -> Array:
    samples, length, _ = rows.shape
    place, pace = np.full((samples, 2), SIDE // 2), np.zeros((samples, 2), np.int64)
    before, was = np.zeros(samples, np.bool_), place
    made = np.zeros((samples, length), np.int64)
    for t in range(length):
        image = rows[:, t, IMAGE]
        seen = image.max(1) > _SEEN
        now = np.stack(np.divmod(image.argmax(1), SIDE), 1)
        pace = np.where((seen & before)[:, None], now - was, pace)
        place = np.where(seen[:, None], now, place)
        before, was = seen, now
        if goes_on:
            ahead = (place + pace) % PHASES
            ahead = np.where(ahead < SIDE, ahead, PHASES - ahead)
            pace = np.where((place + pace < 0) | (place + pace >= SIDE), -pace, pace)
            place = ahead
        made[:, t] = SIDE * place[:, 0] + place[:, 1]
    return made
