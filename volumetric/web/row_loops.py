"""Which rows go where, as nested loops: ``[first source, first target, [[count, source step, target step], …]]``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]
Loop: TypeAlias = tuple[int, int, int]
"""Count, step of the source, step of the target."""
_MOST_RUNS: Final = 1 << 16


def rows_as_loops(sources: Numbers, targets: Numbers) -> list[list[Any]] | None:
    """Return loops that list all pairs of rows in this order; None if they are in no order that loops have."""
    items: list[tuple[int, int, tuple[Loop, ...]]] = []
    for first, count in _runs(sources, targets):
        if len(items) == _MOST_RUNS:
            return None
        source, target = int(sources[first]), int(targets[first])
        loops = ()
        if count > 1:
            loops = ((count, int(sources[first + 1]) - source, int(targets[first + 1]) - target),)
        items.append((source, target, loops))
    shorter = _join(items)
    while len(shorter) < len(items):
        items, shorter = shorter, _join(shorter)
    return [[source, target, [list(loop) for loop in loops]] for source, target, loops in items]


def rows_of_loops(rows: Sequence[Sequence[Any]]) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows of loops: sources and targets."""
    sources, targets = [], []
    for source, target, loops in rows:
        pair = np.array([[source], [target]], np.int64)
        for count, *steps in loops:
            pair = (pair[:, :, None] + np.array(steps, np.int64)[:, None, None] * np.arange(count)).reshape(2, -1)
        sources.append(pair[0])
        targets.append(pair[1])
    return np.concatenate(sources), np.concatenate(targets)


def _runs(sources: Numbers, targets: Numbers) -> Iterator[tuple[int, int]]:
    """Yield first and number of rows of runs whose steps are equal, each as long as can be."""
    changes = np.flatnonzero((np.diff(sources, 2) != 0) | (np.diff(targets, 2) != 0)) + 1
    first, turns = 0, iter(changes.tolist())
    turn = next(turns, None)
    while first < len(sources):
        while turn is not None and turn <= first:  # the step that begins here begins a run
            turn = next(turns, None)
        last = len(sources) - 1 if turn is None else turn
        yield first, last - first + 1
        first = last + 1


def _join(items: list[tuple[int, int, tuple[Loop, ...]]]) -> list[tuple[int, int, tuple[Loop, ...]]]:
    """Join neighbours with the same loops that follow each other at equal steps."""
    joined: list[tuple[int, int, tuple[Loop, ...]]] = []
    at = 0
    while at < len(items):
        source, target, loops = items[at]
        end = at + 1
        if end < len(items) and items[end][2] == loops:
            steps = items[end][0] - source, items[end][1] - target
            while (
                end < len(items)
                and items[end][2] == loops
                and (items[end][0] - items[end - 1][0], items[end][1] - items[end - 1][1]) == steps
            ):
                end += 1
            loops = ((end - at, *steps), *loops)
        joined.append((source, target, loops))
        at = end
    return joined
