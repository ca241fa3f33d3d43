"""Flip-flop: read the bit that was written last, among many to ignore (Liu et al. 2023, arXiv 2306.00946)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split
from volumetric.train.problems import Problem

_WRITE, _READ, _IGNORE, _ZERO = 1, 2, 3, 4  # 0 is a read without its bit; 5 is the bit 1
_RARE: Final = 0.1  # of writes, and of reads
_LATE: Final = 9  # pairs from a write to a read that is scored: the bit is 17 steps back


def flip_flop(
    seed: int = 0,
    samples: int = 1024,
    length: int = 128,
    *,
    split: Split = "train",
    epoch: int = 0,
    dense: bool = False,
) -> Problem:
    """Read the bit that was written last, in pairs of an instruction (write, read, ignore: 10, 10, 80 %) and a bit.

    Reads whose write is more than 16 steps back are scored; the last pair is such a read. An ignored bit before each
    write is the opposite of the written bit, so that counts carry no information. `dense`: all reads are scored.
    """
    return TASK.problem(seed, samples, length, split, epoch, dense=dense)


def _draw(random: np.random.Generator, count: int, length: int, dense: bool) -> DrawnSamples:
    pairs, spare = divmod(length, 2)  # an odd first row is blank
    chosen = random.random((count, pairs))
    kind = np.where(chosen < _RARE, _WRITE, np.where(chosen < 2 * _RARE, _READ, _IGNORE))
    kind[:, 0], kind[:, 1], kind[:, -1] = _IGNORE, _WRITE, _READ
    late = kind[:, -_LATE:-1]
    late[late == _WRITE] = _IGNORE
    bits = random.integers(0, 2, (count, pairs))
    for i in range(pairs - 1, 0, -1):  # backwards: the pair before a write is to be ignored
        writes = kind[:, i] == _WRITE
        kind[writes, i - 1], bits[writes, i - 1] = _IGNORE, 1 - bits[writes, i]
    x = np.zeros((count, length), np.int64)
    x[:, spare::2], x[:, spare + 1 :: 2] = kind, np.where(kind == _READ, 0, _ZERO + bits)
    return x, _run_latch(x, 0 if dense else _LATE)


def solve(inputs: Array) -> Array:
    """Process the pairs with a latch."""
    return _run_latch(inputs, _LATE)


def _run_latch(inputs: Array, late: int) -> Array:
    answers = np.full(inputs.shape, NOT_ASKED)
    bit, since = np.zeros(len(inputs), np.int64), np.zeros(len(inputs), np.int64)
    for t in range(inputs.shape[1] % 2, inputs.shape[1], 2):
        writes, since = inputs[:, t] == _WRITE, since + 1
        bit, since = np.where(writes, inputs[:, t + 1] - _ZERO, bit), np.where(writes, 0, since)
        reads = (inputs[:, t] == _READ) & (since >= late)
        answers[reads, t] = bit[reads]
    return answers


TASK: Final = MemoryTask(
    name="flip_flop",
    draw=_draw,
    shortest=2 * (_LATE + 2),
    vocabulary=_ZERO + 2,
    classes=("0", "1"),
    about="read the bit that was written last, among bits to ignore",
    needs="a latch that does not leak",
    make=flip_flop,
    solve=solve,
    length=128,
    dense=True,
    chance=0.5,
)
