"""Base of memory tasks: samples by seed and number, and three disjoint splits."""

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
_BLOCK: Final = 256  # samples drawn at once
_PARTS: Final = {"train": (0, 1), "validation": (2,), "test": (3,)}  # parts, out of four, of all samples, by hash

DrawnSamples: TypeAlias = tuple[Array, Array]
"""Inputs and answers ``[samples, T]``, `NOT_ASKED` for rows without a query; values ``[samples, T, 1]`` use NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTask:
    """A task that needs one kind of memory, and the source of its samples.

    A sample depends only on seed, epoch, its number and its length. A hash of its inputs determines its split, so that
    splits are disjoint for all seeds.

    Attributes
    ----------
    name : name of the task, also in errors and for the random stream
    draw : ``draw(random, count, length, **options)`` → inputs and answers of `count` samples
    shortest : minimum length of the task
    vocabulary, classes : of the problem; tasks without classes have values
    about : description of the task, in a line
    needs : required kind of memory
    make : ``make(seed, samples, length, …) -> Problem``; all arguments have defaults
    solve : correct answers computed from the inputs, with `NOT_ASKED` or NaN for rows without a query; may be missing
    length : default number of rows in a sample
    chance : accuracy from the frequencies of the answers alone
    controls : baselines that solve it; all others fail
    regression : answers are values
    dense : `make` takes ``dense=True``: more and earlier rows have queries, which helps learning
    """

    name: str
    draw: Callable[..., DrawnSamples]
    shortest: int
    vocabulary: int = 0
    classes: tuple[str, ...] = ()
    about: str
    needs: str
    make: Callable[..., Problem]
    solve: Callable[..., Array] | None = None
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
        epoch : each epoch has other samples
        shortest : minimum length with these options, if they change it

        Raises
        ------
        SpecError : a number is too small, or the split is unknown
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
        blocks: list[DrawnSamples] = []
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
    # Mix one by one: a sum of plain products would reveal parities of the inputs.
    return (_mix_bits(_mix_bits(rows + salt).sum(1, dtype=np.uint64)) >> np.uint64(62)).astype(np.int64)


def _mix_bits(x: Array) -> Array:
    """Mix all bits (the finaliser of MurmurHash3, Appleby 2008); modulo 2⁶⁴."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def places(random: np.random.Generator, slots: Array, count: int) -> Array:
    """Return `count` distinct positions below `slots`, sorted, for each sample, uniformly at random.

    Parameters
    ----------
    slots : int64 ``[samples]``, at least `count`

    Returns
    -------
    int64 ``[samples, count]``
    """
    keys = random.random((len(slots), int(slots.max())))
    keys[np.arange(keys.shape[1]) >= slots[:, None]] = 2.0  # after all existing ones
    return np.sort(np.argpartition(keys, count - 1, axis=1)[:, :count], axis=1)


def draw_between(random: np.random.Generator, low: int, high: Array) -> Array:
    """Return a uniform random integer in ``low … high`` for each sample."""
    return low + (random.random(len(high)) * (high - low + 1)).astype(np.int64)
