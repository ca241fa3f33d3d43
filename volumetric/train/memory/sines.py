"""Sines: predict the next value of a sum of four sines. Values instead of tokens, scored by squared errors."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import DrawnSamples, MemoryTask, Split
from volumetric.train.problems import Problem

_SINES: Final = 4
ORDER: Final = 2 * _SINES
"""Number of preceding values that determine a sum of four sines linearly (Prony 1795)."""
_WARM: Final = 4 * ORDER  # rows before the first scored row


def sines(seed: int = 0, samples: int = 1024, length: int = 128, *, split: Split = "train", epoch: int = 0) -> Problem:
    """Predict the next value of a sum of four sines of amplitude ½, with random frequencies."""
    return TASK.problem(seed, samples, length, split, epoch)


def _draw(random: np.random.Generator, count: int, length: int) -> DrawnSamples:
    speed = random.uniform(0.1, 2.2, (count, 1, _SINES))
    phase = random.uniform(0, 2 * np.pi, (count, 1, _SINES))
    wave = 0.5 * np.sin(speed * np.arange(length + 1)[:, None] + phase).sum(2, keepdims=True)
    answers = wave[:, 1:].copy()
    answers[:, :_WARM] = np.nan
    return wave[:, :-1].astype(np.float32), answers


def solve(inputs: Array) -> Array:
    """Fit the linear recurrence of each sample to its first rows, and extrapolate."""
    x = inputs[..., 0].astype(np.float64)
    answers = np.full(inputs.shape, np.nan)
    past = np.lib.stride_tricks.sliding_window_view(x, ORDER, axis=1)  # [samples, T − 7, 8]
    for row, windows in enumerate(past):
        known = windows[: _WARM - ORDER + 1]
        weights = np.linalg.lstsq(known[:-1], x[row, ORDER : _WARM + 1][: len(known) - 1], rcond=1e-9)[0]
        answers[row, _WARM:, 0] = windows[_WARM - ORDER + 1 :] @ weights
    return answers


TASK: Final = MemoryTask(
    name="sines",
    draw=_draw,
    shortest=_WARM + 8,
    about="how does a sum of four sines continue?",
    needs="oscillators, or a recurrence fitted on the way",
    make=sines,
    solve=solve,
    length=128,
    chance=1.0,
    regression=True,
)
