"""Delayed recall: one symbol to store, others to ignore, a late query (after Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, draw_between, places
from volumetric.train.problems import Problem

_STORE, _IGNORE, _QUERY, _FIRST = 1, 2, 3, 4  # 0 is a blank
_SYMBOLS: Final = 8
_NEAREST: Final = 20  # steps from the symbol to the query, at least
_CLEAR: Final = 16  # steps before the query without symbols, if they fit


def delayed_recall(
    seed: int = 0,
    samples: int = 1024,
    length: int = 224,
    *,
    split: Split = "train",
    epoch: int = 0,
    dense: bool = False,
) -> Problem:
    """Recall the symbol after a "store" mark in the first tenth; the 7 others follow "ignore" marks later.

    The query is 20 to ``length − length / 10 − 2`` steps later. Each symbol appears once, and the 16 steps before the
    query are blank, so that neither counts nor the last rows carry information. `dense`: each row from the symbol to
    the query is a query.
    """
    return TASK.problem(seed, samples, length, split, epoch, dense=dense)


def _draw(random: np.random.Generator, count: int, length: int, dense: bool) -> DrawnSamples:
    x, y = np.zeros((count, length), np.int64), np.full((count, length), NOT_ASKED)
    each = np.arange(count)
    mark = random.integers(0, max(1, length // 10 - 1), count)
    query = mark + 1 + draw_between(random, _NEAREST, length - 2 - mark)
    order = random.permuted(np.tile(np.arange(_SYMBOLS), (count, 1)), axis=1)
    x[each, mark], x[each, mark + 1] = _STORE, _FIRST + order[:, 0]
    x[each, query], y[each, query] = _QUERY, order[:, 0]
    if dense:
        y = np.where((np.arange(length) > mark[:, None]) & (np.arange(length) <= query[:, None]), order[:, :1], y)
    pairs = _SYMBOLS - 1
    room = np.maximum(query - mark - 1 - _CLEAR, 2 * pairs)
    starts = (mark + 2)[:, None] + places(random, room - pairs, pairs) + np.arange(pairs)
    x[each[:, None], starts], x[each[:, None], starts + 1] = _IGNORE, _FIRST + order[:, 1:]
    return x, y


def solve(inputs: Array) -> Array:
    """Answer with the symbol after the mark."""
    each = np.arange(len(inputs))
    symbols = inputs[each, np.argmax(inputs == _STORE, axis=1) + 1] - _FIRST
    return np.where(inputs == _QUERY, symbols[:, None], NOT_ASKED)


TASK: Final = MemoryTask(
    name="delayed_recall",
    draw=_draw,
    shortest=32,
    vocabulary=_FIRST + _SYMBOLS,
    classes=tuple(map(str, range(_SYMBOLS))),
    about="name the stored symbol, 20 or many more steps later",
    needs="one symbol, kept behind a gate",
    make=delayed_recall,
    solve=solve,
    length=224,
    dense=True,
    chance=1 / _SYMBOLS,
)
