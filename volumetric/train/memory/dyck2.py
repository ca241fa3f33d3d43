"""Brackets of two kinds: is every bracket closed by its own kind? (Chomsky & Schützenberger 1963)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split
from volumetric.train.problems import Problem

_QUERY: Final = 4  # 0 and 1 open, 2 and 3 close brackets of the two kinds
_DEPTH, _CLEAR, _SPAN = 8, 16, 6


def dyck2(
    seed: int = 0,
    samples: int = 1024,
    length: int = 128,
    *,
    split: Split = "train",
    epoch: int = 0,
    dense: bool = False,
) -> Problem:
    """Classify prefixes of bracket words, at most 8 deep, by whether each bracket is closed by its own kind.

    Wrong words swap the kinds of two closing brackets of different kinds: counts and depths equal those of a right
    word. Both close a bracket at least 6 steps before, and are before the last 16 rows. `dense`: each closing bracket
    is a query, and in half of the wrong words closing brackets have random kinds.
    """
    return TASK.problem(seed, samples, length, split, epoch, dense=dense)


def _draw(random: np.random.Generator, count: int, length: int, dense: bool) -> DrawnSamples:
    x, y = np.empty((0, length), np.int64), np.empty((0, length), np.int64)
    while len(x) < count:  # some have no two brackets to swap
        words, far = _words(random, count, length)
        chosen = [_one_of(random, far & (words == kind)) for kind in (2, 3)]
        fit = np.nonzero((chosen[0] >= 0) & (chosen[1] >= 0))[0]
        words, right = words[fit], random.integers(0, 2, len(fit))
        meant, closes, wrong = words.copy(), (words == 2) | (words == 3), np.nonzero(right == 0)[0]
        for at, kind in zip(chosen, (3, 2), strict=True):
            words[wrong, at[fit][wrong]] = kind
        if dense:  # half of the wrong words have random kinds
            free = closes & (right == 0)[:, None] & (random.random((len(fit), 1)) < 0.5)
            words = np.where(free, random.integers(2, 4, words.shape), words)
        answers = np.where(closes & dense, words == meant, NOT_ASKED)
        answers[:, -1] = (words == meant).all(1)
        x, y = np.concatenate([x, words]), np.concatenate([y, answers])
    return x[:count], y[:count]


def _words(random: np.random.Generator, count: int, length: int) -> tuple[Array, Array]:
    """Return right words followed by a query, and a mask of the brackets that close a distant one."""
    x, far = np.full((count, length), _QUERY), np.zeros((count, length), bool)
    each, depth = np.arange(count), np.zeros(count, np.int64)
    kinds, since = np.zeros((count, _DEPTH), np.int64), np.zeros((count, _DEPTH), np.int64)
    for t in range(length - 1):
        opens = (random.random(count) < 0.5) & (depth < _DEPTH) | (depth == 0)
        kind, top = random.integers(0, 2, count), np.where(opens, depth, depth - 1)
        kinds[each[opens], top[opens]], since[each[opens], top[opens]] = kind[opens], t
        x[:, t] = np.where(opens, kind, 2 + kinds[each, top])
        far[:, t] = ~opens & (t - since[each, top] >= _SPAN) & (t < length - _CLEAR)
        depth = top + opens
    return x, far


def _one_of(random: np.random.Generator, marked: Array) -> Array:
    """Return a random marked position of each row; −1 if none is marked."""
    keys = np.where(marked, random.random(marked.shape), -1.0)
    return np.where(marked.any(1), keys.argmax(1), -1)


def solve(inputs: Array) -> Array:
    """Check the word with a stack."""
    answers = np.full(inputs.shape, NOT_ASKED)
    for row, word in enumerate(inputs.tolist()):
        stack, right = list[int](), True
        for t, token in enumerate(word):
            if token < 2:
                stack.append(token)
            elif token < _QUERY:
                right = right and bool(stack) and stack.pop() == token - 2
            else:
                answers[row, t] = right
    return answers


TASK: Final = MemoryTask(
    name="dyck2",
    draw=_draw,
    shortest=64,
    vocabulary=_QUERY + 1,
    classes=("wrong", "right"),
    about="does each closing bracket match the one that it closes?",
    needs="a stack",
    make=dyck2,
    solve=solve,
    length=128,
    dense=True,
    chance=0.5,
)
