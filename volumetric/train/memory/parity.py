"""Parity: was the number of ones odd? One bit, flipped by each one and then held."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, draw_between
from volumetric.train.problems import Problem

_BEGIN, _QUERY = 2, 3  # in addition to 0 and 1
_HEAD, _MOST = 64, 16


def parity(
    seed: int = 0,
    samples: int = 1024,
    length: int = 322,
    *,
    split: Split = "train",
    epoch: int = 0,
    dense: bool = False,
) -> Problem:
    """Classify whether the number of ones is odd: 0 … 16 among 64 rows after a mark, then at least as many zeros.

    All numbers are equally likely. The query is the last row; zeros precede the mark. If `length` is below 194, the
    head has a third of it. `dense`: each row from the head on is a query for the parity so far.
    """
    return TASK.problem(seed, samples, length, split, epoch, dense=dense)


def _draw(random: np.random.Generator, count: int, length: int, dense: bool) -> DrawnSamples:
    x, y = np.zeros((count, length), np.int64), np.full((count, length), NOT_ASKED)
    head = min(_HEAD, (length - 2) // 3)
    ones = random.integers(0, _MOST + 1, count)
    tail = draw_between(random, head, np.full(count, length - 2 - head))
    bits = random.permuted((np.arange(head) < ones[:, None]).astype(np.int64), axis=1)
    first = (length - 1 - head - tail)[:, None]
    np.put_along_axis(x, first + np.arange(head), bits, 1)
    np.put_along_axis(x, first - 1, _BEGIN, 1)
    if dense:
        y = np.where(np.arange(length) >= first, np.cumsum(x == 1, axis=1) % 2, y)
    x[:, -1], y[:, -1] = _QUERY, ones % 2
    return x, y


def solve(inputs: Array) -> Array:
    """Count the ones, modulo 2."""
    answers = np.full(inputs.shape, NOT_ASKED)
    answers[:, -1] = (inputs == 1).sum(1) % 2
    return answers


TASK: Final = MemoryTask(
    name="parity",
    draw=_draw,
    shortest=3 * _MOST + 2,
    vocabulary=_QUERY + 1,
    classes=("even", "odd"),
    about="was the number of ones odd?",
    needs="one bit, flipped exactly",
    make=parity,
    solve=solve,
    length=322,
    dense=True,
    chance=(_MOST // 2 + 1) / (_MOST + 1),
)
