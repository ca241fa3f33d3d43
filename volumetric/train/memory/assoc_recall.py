"""Associative recall: which value followed this key? (after Arora et al. 2023, arXiv 2312.04927)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.train.memory.memory_task import NOT_ASKED, DrawnSamples, MemoryTask, Split, places
from volumetric.train.problems import Problem

_QUERY, _KEY = 1, 2  # 0 is a blank
_KINDS, _LONE, _QUERIES = 32, 8, 4
_VALUE: Final = _KEY + _KINDS
_CLEAR: Final = 16


def assoc_recall(
    seed: int = 0, samples: int = 1024, length: int = 128, *, split: Split = "train", epoch: int = 0, pairs: int = 8
) -> Problem:
    """Recall the values that followed keys, for one to four queries with gaps; there are 32 keys and 32 values.

    Eight other keys have no value, and values without a key appear alone: each value appears once, so that counts carry
    no information. Queries are in the last quarter, at least 16 steps after the last pair.

    Raises `SpecError` unless there are 4 … 24 pairs, which fit into `length`.
    """
    if not _QUERIES <= pairs <= _KINDS - _LONE:
        raise SpecError(f"assoc_recall: pairs must be in {_QUERIES} … {_KINDS - _LONE}, got {pairs}")
    return TASK.problem(seed, samples, length, split, epoch, shortest=_tokens(pairs) + 2 * _CLEAR, pairs=pairs)


def _tokens(pairs: int) -> int:
    return 2 * (pairs + _LONE) + _KINDS - pairs


def _draw(random: np.random.Generator, count: int, length: int, pairs: int) -> DrawnSamples:
    """Draw `count` samples with `pairs` pairs each; return token ids and answers, int64 ``[count, length]``."""
    x, y = np.zeros((count, length), np.int64), np.full((count, length), NOT_ASKED)
    each = np.arange(count)[:, None]
    keys, values = (random.permuted(np.tile(np.arange(_KINDS), (count, 1)), axis=1) for _ in range(2))
    asking = max(2 * _CLEAR, length // 4)
    # The context: pairs, lone keys followed by a blank, lone values.
    items = pairs + _LONE + _KINDS - pairs
    first = np.concatenate([_KEY + keys[:, : pairs + _LONE], _VALUE + values[:, pairs:]], 1)
    second = np.concatenate([_VALUE + values[:, :pairs], np.zeros((count, items - pairs), np.int64)], 1)
    widths = np.where(np.arange(items) < pairs + _LONE, 2, 1)
    order = random.permuted(np.tile(np.arange(items), (count, 1)), axis=1)
    blanks = np.sort(random.integers(0, length - asking - _tokens(pairs) + 1, (count, items)), axis=1)
    starts = np.cumsum(widths[order], 1) - widths[order] + blanks
    x[each, starts] = first[each, order]
    wide = np.nonzero(widths[order] == 2)
    x[wide[0], starts[wide] + 1] = second[wide[0], order[wide]]
    # Queries.
    number = random.integers(1, _QUERIES + 1, count)[:, None]
    room = asking - _CLEAR
    at = length - room + places(random, np.full(count, room - _QUERIES), _QUERIES) + np.arange(_QUERIES)
    queried = random.permuted(np.tile(np.arange(pairs), (count, 1)), axis=1)[:, :_QUERIES]
    there = np.nonzero(np.arange(_QUERIES) < number)
    x[there[0], at[there]] = _QUERY
    x[there[0], at[there] + 1] = _KEY + keys[there[0], queried[there]]
    y[there[0], at[there] + 1] = values[there[0], queried[there]]
    return x, y


def solve(inputs: Array) -> Array:
    """Find the value behind each key, and look it up."""
    bindings, answers = np.zeros((len(inputs), _KINDS), np.int64), np.full(inputs.shape, NOT_ASKED)
    for t in range(1, inputs.shape[1]):
        before, now = inputs[:, t - 1], inputs[:, t]
        bound = np.nonzero((before >= _KEY) & (before < _VALUE) & (now >= _VALUE))[0]
        bindings[bound, before[bound] - _KEY] = now[bound] - _VALUE
        queries = np.nonzero(before == _QUERY)[0]
        answers[queries, t] = bindings[queries, now[queries] - _KEY]
    return answers


TASK: Final = MemoryTask(
    name="assoc_recall",
    draw=_draw,
    shortest=_tokens(8) + 2 * _CLEAR,
    vocabulary=_VALUE + _KINDS,
    classes=tuple(map(str, range(_KINDS))),
    about="which value followed this key?",
    needs="binding of values to keys",
    make=assoc_recall,
    solve=solve,
    length=128,
    chance=1 / _KINDS,
)
