"""Copy: repeat ten symbols in order after a pause (after Graves, Wayne & Danihelka 2014, arXiv 1410.5401)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, draw_between
from volumetric.train.problems import Problem

_START, _GO, _FIRST = 1, 2, 3  # 0 is a blank
_SYMBOLS, _ITEMS, _OTHERS, _SHORTEST_PAUSE = 8, 10, 6, 20
_FIXED: Final = _OTHERS + 1 + 2 * _ITEMS


def copy(seed: int = 0, samples: int = 1024, length: int = 128, *, split: Split = "train", epoch: int = 0) -> Problem:
    """Repeat ten symbols out of 8 that follow a "start" mark, after a pause of 20 to ``length − 28`` steps.

    Six symbols precede the mark, so that each of the 8 appears twice and counts carry no information.
    """
    return TASK.problem(seed, samples, length, split, epoch)


def _draw(random: np.random.Generator, count: int, length: int) -> DrawnSamples:
    x, y = np.zeros((count, length), np.int64), np.full((count, length), NOT_ASKED)
    each = np.arange(count)[:, None]
    order = random.permuted(np.tile(np.arange(_OTHERS + _ITEMS) % _SYMBOLS, (count, 1)), axis=1)
    pause = draw_between(random, _SHORTEST_PAUSE, np.full(count, length - _FIXED - 1))
    first = (length - _FIXED - pause)[:, None]  # blanks before everything
    x[each, first + np.arange(_OTHERS)] = _FIRST + order[:, :_OTHERS]
    x[each, first + _OTHERS] = _START
    x[each, first + _OTHERS + 1 + np.arange(_ITEMS)] = _FIRST + order[:, _OTHERS:]
    x[:, -_ITEMS:], y[:, -_ITEMS:] = _GO, order[:, _OTHERS:]
    return x, y


def solve(inputs: Array) -> Array:
    """Repeat the symbols after the mark."""
    start = np.argmax(inputs == _START, axis=1)[:, None]
    answers = np.full(inputs.shape, NOT_ASKED)
    answers[:, -_ITEMS:] = np.take_along_axis(inputs, start + 1 + np.arange(_ITEMS), 1) - _FIRST
    return np.where(inputs == _GO, answers, NOT_ASKED)


TASK: Final = MemoryTask(
    name="copy",
    draw=_draw,
    shortest=_FIXED + _SHORTEST_PAUSE + 1,
    vocabulary=_FIRST + _SYMBOLS,
    classes=tuple(map(str, range(_SYMBOLS))),
    about="repeat ten symbols in order, after a pause",
    needs="several symbols in order",
    make=copy,
    solve=solve,
    length=128,
    chance=1 / _SYMBOLS,
)
