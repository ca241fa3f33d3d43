"""Majority: which of two symbols is more frequent? Counting, as a control."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, draw_between
from volumetric.train.problems import Problem

_MINUS, _PLUS, _QUERY = 1, 2, 3  # 0 is a blank
_MARGIN, _CLEAR = 9, 16


def majority(
    seed: int = 0,
    samples: int = 1024,
    length: int = 128,
    *,
    split: Split = "train",
    epoch: int = 0,
    dense: bool = False,
) -> Problem:
    """Classify which votes among blanks are more frequent.

    Margins of 1 … 9 are equally likely. The last 16 rows are blank, and the number of blanks carries no information.
    `dense`: all rows without a tie so far are queries.
    """
    return TASK.problem(seed, samples, length, split, epoch, dense=dense)


def _draw(random: np.random.Generator, count: int, length: int, dense: bool) -> DrawnSamples:
    x, y = np.zeros((count, length), np.int64), np.full((count, length), NOT_ASKED)
    room = length - 1 - _CLEAR
    margin, plus = random.integers(1, _MARGIN + 1, count), random.integers(0, 2, count)
    even = draw_between(random, 0, np.full(count, (room - _MARGIN) // 4))  # half of the votes that cancel
    at = np.arange(room)
    order = np.where(at < (even + margin)[:, None], 1 + plus[:, None], 0)
    order = np.where((at >= (even + margin)[:, None]) & (at < (2 * even + margin)[:, None]), 2 - plus[:, None], order)
    x[:, :room] = random.permuted(order, axis=1)
    if dense:
        lead = np.cumsum((x == _PLUS).astype(np.int64) - (x == _MINUS), axis=1)
        y = np.where(lead == 0, NOT_ASKED, lead > 0)
    x[:, -1], y[:, -1] = _QUERY, plus
    return x, y


def solve(inputs: Array) -> Array:
    """Count the votes."""
    answers = np.full(inputs.shape, NOT_ASKED)
    answers[:, -1] = (inputs == _PLUS).sum(1) > (inputs == _MINUS).sum(1)
    return answers


TASK: Final = MemoryTask(
    name="majority",
    draw=_draw,
    shortest=32,
    vocabulary=_QUERY + 1,
    classes=("minus", "plus"),
    about="are there more votes for or against?",
    needs="a counter",
    make=majority,
    solve=solve,
    length=128,
    dense=True,
    chance=0.5,
    controls=("bag",),
)
