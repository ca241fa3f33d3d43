"""N-back: is this token equal to the token n steps before? (Kirchner 1958)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split
from volumetric.train.problems import Problem

_SYMBOLS: Final = 8


def n_back(
    seed: int = 0, samples: int = 1024, length: int = 128, *, split: Split = "train", epoch: int = 0, n: int = 3
) -> Problem:
    """Classify whether each token equals that of `n` steps before (half do; half of the others match n ± 1).

    Raises `SpecError` unless n is in 2 … 15.
    """
    if not 2 <= n <= 15:
        raise SpecError(f"n_back: n must be in 2 … 15, got {n}", hint="use n of at most 15, the reach of the control")
    return TASK.problem(seed, samples, length, split, epoch, shortest=n + 2, n=n)


def _draw(random: np.random.Generator, count: int, length: int, n: int) -> DrawnSamples:
    x = random.integers(0, _SYMBOLS, (count, length))
    for t in range(n + 1, length):
        back = x[:, t - n]
        other = (back + random.integers(1, _SYMBOLS, count)) % _SYMBOLS
        lure = np.where(random.random(count) < 0.5, x[:, t - n + 1], x[:, t - n - 1])
        other = np.where((random.random(count) < 0.5) & (lure != back), lure, other)
        x[:, t] = np.where(random.random(count) < 0.5, back, other)
    return x, solve(x, n=n)


def solve(inputs: Array, *, n: int = 3) -> Array:
    """Compare tokens."""
    answers = np.full(inputs.shape, NOT_ASKED)
    answers[:, n + 1 :] = inputs[:, n + 1 :] == inputs[:, 1:-n]
    return answers


TASK: Final = MemoryTask(
    name="n_back",
    draw=_draw,
    shortest=5,
    vocabulary=_SYMBOLS,
    classes=("other", "same"),
    about="is this the token of three steps before?",
    needs="a shift register",
    make=n_back,
    solve=solve,
    length=128,
    chance=0.5,
    controls=("last16",),
)
