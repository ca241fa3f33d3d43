"""Selective copy: repeat the symbols among noise (Gu & Dao 2023, arXiv 2312.00752)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, places
from volumetric.train.problems import Problem

_GO, _NOISE, _FIRST = 0, 1, 5  # noise: four tokens
_SYMBOLS, _ITEMS = 8, 16


def selective_copy(
    seed: int = 0, samples: int = 1024, length: int = 272, *, split: Split = "train", epoch: int = 0
) -> Problem:
    """Repeat 16 symbols, each of 8 twice, that are among ``length − 32`` noise tokens, in order."""
    return TASK.problem(seed, samples, length, split, epoch)


def _draw(random: np.random.Generator, count: int, length: int) -> DrawnSamples:
    y = np.full((count, length), NOT_ASKED)
    x = random.integers(_NOISE, _FIRST, (count, length))
    order = random.permuted(np.tile(np.arange(_ITEMS) % _SYMBOLS, (count, 1)), axis=1)
    at = places(random, np.full(count, length - _ITEMS), _ITEMS)
    np.put_along_axis(x, at, _FIRST + order, 1)
    x[:, -_ITEMS:], y[:, -_ITEMS:] = _GO, order
    return x, y


def solve(inputs: Array) -> Array:
    """Repeat the tokens that are not noise."""
    order = np.argsort(inputs < _FIRST, axis=1, kind="stable")[:, :_ITEMS]
    answers = np.full(inputs.shape, NOT_ASKED)
    answers[:, -_ITEMS:] = np.take_along_axis(inputs, order, 1) - _FIRST
    return np.where(inputs == _GO, answers, NOT_ASKED)


TASK: Final = MemoryTask(
    name="selective_copy",
    draw=_draw,
    shortest=4 * _ITEMS,
    vocabulary=_FIRST + _SYMBOLS,
    classes=tuple(map(str, range(_SYMBOLS))),
    about="repeat sixteen symbols hidden in noise, in order",
    needs="several symbols in order, behind a gate that reads them",
    make=selective_copy,
    solve=solve,
    length=272,
    chance=1 / _SYMBOLS,
)
