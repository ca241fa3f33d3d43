"""What memory tasks have in common: samples by seed and number, three splits that share none, and what a task is."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from volumetric.base import rng
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.train.losses import IGNORED
from volumetric.train.problems import Problem

Split: TypeAlias = Literal["train", "validation", "test"]
NOT_ASKED: Final = IGNORED
"""Answer of rows that are not scored."""
_BLOCK: Final = 256  # samples that are drawn at once
_PARTS: Final = {"train": (0, 1), "validation": (2,), "test": (3,)}  # of four parts of all samples, by their hash

Drawn: TypeAlias = tuple[Array, Array]
"""Inputs and answers ``[samples, T]``, `NOT_ASKED` where none is; of values ``[samples, T, 1]``, answers NaN there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTask:
    """A task that cannot be done without one kind of memory, and where its samples come from.

    A sample depends on seed, epoch, its number and its length alone. Which split it is of depends on a hash of its
    inputs: two splits share none, whatever seeds they are drawn with.

    Attributes
    ----------
    name : how it is asked for; for errors and the stream of random numbers, too
    draw : ``draw(random, count, length, **options)`` → inputs and answers of so many samples
    shortest : least length that holds the task
    vocabulary, classes : of the problem; without classes there are values
    about : what is to be done, in a line
    needs : the memory that it takes
    make : ``make(seed, samples, length, …) -> Problem``; all have defaults
    solve : answers by the task's own rule from the inputs alone, `NOT_ASKED` or NaN where none is asked for
    length : rows of a sample unless told otherwise
    chance : share of right answers of who knows how often each comes, and no more
    controls : baselines that solve it; all others fail
    regression : answers are values
    dense : `make` takes ``dense=True``: answers are asked for at more rows, and earlier, which helps learning
    """

    name: str
    draw: Callable[..., Drawn]
    shortest: int
    vocabulary: int = 0
    classes: tuple[str, ...] = ()
    about: str
    needs: str
    make: Callable[..., Problem]
    solve: Callable[..., Array]
    length: int
    chance: float
    controls: tuple[str, ...] = ()
    regression: bool = False
    dense: bool = False

    def problem(
        self, seed: int, samples: int, length: int, split: Split, epoch: int, *, shortest: int = 0, **options: Any
    ) -> Problem:
        """Draw samples of a split until there are enough.

        Parameters
        ----------
        epoch : samples of another epoch are others
        shortest : least length with these options, where they change it

        Raises
        ------
        SpecError : a number is too small, or the split unknown
        """
        least = shortest or self.shortest
        for name, value, low in (
            ("samples", samples, 1),
            ("length", length, least),
            ("seed", seed, 0),
            ("epoch", epoch, 0),
        ):
            if value < low:
                raise SpecError(f"{self.name}: {name} must be at least {low}, got {value}")
        if split not in _PARTS:
            raise SpecError(f"{self.name}: unknown split {split!r}", hint=f"one of {', '.join(_PARTS)}")
        blocks: list[Drawn] = []
        count, stream = 0, zlib.crc32(self.name.encode())
        for block in itertools.count():
            inputs, answers = self.draw(rng.generator(seed, stream, epoch, block), _BLOCK, length, **options)
            mine = np.isin(part_of(inputs), _PARTS[split])
            blocks.append((inputs[mine], answers[mine]))
            count += int(mine.sum())
            if count >= samples:
                break
        x, y = (np.concatenate(arrays)[:samples] for arrays in zip(*blocks, strict=True))
        resets = np.zeros((samples, length), np.uint8)
        resets[:, 0] = 1
        if self.classes:
            answered = y != NOT_ASKED
            x, y = x.astype(np.int32), y.astype(np.int64)
        else:
            answered = np.isfinite(y[..., 0])
            x, y = x.astype(np.float32), np.where(np.isfinite(y), y, 0).astype(np.float32)
        return Problem(
            inputs=x,
            targets=y,
            mask=answered.astype(np.float32),
            resets=resets,
            classes=self.classes,
            vocabulary=self.vocabulary,
        )


def part_of(inputs: Array) -> Array:
    """Return a number in 0 … 3 for each sample, a hash of its numbers."""
    rows = np.ascontiguousarray(inputs.reshape(len(inputs), -1), np.float32).view(np.uint32).astype(np.uint64)
    salt = rng.generator(0, rows.shape[1]).integers(0, 2**64, rows.shape[1], np.uint64)
    # Mixed one by one: a sum of plain products would tell parities of the inputs.
    return (_mixed(_mixed(rows + salt).sum(1, dtype=np.uint64)) >> np.uint64(62)).astype(np.int64)


def _mixed(x: Array) -> Array:
    """Spread all bits over all (the end of MurmurHash3, Appleby 2008); modulo 2⁶⁴."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def places(random: np.random.Generator, slots: Array, count: int) -> Array:
    """Return `count` different places below `slots`, in order, for each sample; every choice is as likely.

    Parameters
    ----------
    slots : int64 ``[samples]``, at least `count`

    Returns
    -------
    int64 ``[samples, count]``
    """
    keys = random.random((len(slots), int(slots.max())))
    keys[np.arange(keys.shape[1]) >= slots[:, None]] = 2.0  # behind all that are there
    return np.sort(np.argpartition(keys, count - 1, axis=1)[:, :count], axis=1)


def between(random: np.random.Generator, low: int, high: Array) -> Array:
    """Return a whole number in ``low … high`` for each sample, all as likely."""
    return low + (random.random(len(high)) * (high - low + 1)).astype(np.int64)
