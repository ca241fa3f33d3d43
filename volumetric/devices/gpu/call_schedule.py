"""Composition of calls of several sequences: their rows, the order of rows, and the control block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.kernels.dispatch import CallRows, ceil_div
from volumetric.run.call_batch import RowSpan, deal_spans

PLACES = 512
"""Sequences whose places a control block lists, as in the shaders; as many rows if none is in a block."""
LISTED_ROWS = 4096
"""Rows in blocks whose sequences it lists."""
LISTED_BLOCKS = 1024
"""Blocks it lists. The first rows of blocks of 64 rows, the largest, are numbers of 16 bits."""
_BLOCKS = 2
_NEAR = 4
NEAR_PAGES = 56
_PLACES = _NEAR + NEAR_PAGES
_OWNERS = _PLACES + 4 * PLACES
_STARTS = _OWNERS + LISTED_ROWS // 2
NEAR_BYTES = 4 * _NEAR
"""Start of the list of near pages."""
CONTROL_BYTES = 4 * (_STARTS + LISTED_BLOCKS)


@dataclass(frozen=True, slots=True)
class SequenceSpan:
    """Consecutive rows of a sequence in a call.

    Attributes
    ----------
    line : line of the sequence in the page tables
    position : position of the first row
    rows : number of rows
    pages : pages of the sequence; read if it is the only one with a single row
    """

    line: int
    position: int
    rows: int
    pages: Sequence[int] = ()


def schedule_calls(
    lengths: Sequence[int],
    most: int,
    *,
    apart: bool,
    whole: bool = False,
    each: int | None = None,
    block: int = LISTED_ROWS,
) -> list[list[RowSpan]]:
    """Split the rows of sequences, `lengths` each, into calls of at most `most` rows, single rows first.

    Parameters
    ----------
    apart : each sequence has separate calls
    whole : sequences, of `most` rows at most, are not split
    each : maximum rows of a sequence in a call, see `Graph.piece`
    block : rows of a block
    """
    if whole and not apart and each is None:
        return [[RowSpan(i, 0, lengths[i]) for i in call] for call in whole_calls(lengths, most, block)]
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] > 1)
    groups = [[piece] for piece in order] if apart else [order]
    dealt = (
        [RowSpan(group[span.sequence], span.start, span.stop) for span in call]
        for group in groups
        for call in deal_spans([lengths[piece] for piece in group], most, split=not whole, each=each)
    )
    return [sorted(call, key=lambda span: len(span) > 1) for call in dealt]


def whole_calls(lengths: Sequence[int], most: int, block: int) -> list[range]:
    """Split sequences that are not divided, in order, into calls of at most `most` rows in blocks of `block` each.

    A call has no more sequences, rows and blocks than the control block lists, or one sequence only.
    """
    calls: list[range] = []
    first = rows = blocks = 0
    most = min(most, LISTED_ROWS)
    for number, length in enumerate(lengths):
        own = ceil_div(length, block)
        full = rows + length > most or blocks + own > LISTED_BLOCKS or number - first == PLACES
        if full and number > first:
            calls.append(range(first, number))
            first, rows, blocks = number, 0, 0
        rows, blocks = rows + length, blocks + own
    return [*calls, range(first, len(lengths))]


def count_rows(places: Sequence[SequenceSpan], each: int, *, singles: bool) -> CallRows:
    """Rows of a call with sequences in blocks of `each` rows; without `singles`, single rows are in blocks, too."""
    alone = sum(place.rows == 1 for place in places) if singles else 0
    blocks = sum(ceil_div(place.rows, each) for place in places[alone:])
    return CallRows(sum(place.rows for place in places), alone, blocks, len(places))


def control_words(places: Sequence[SequenceSpan], rows: CallRows, each: int) -> NDArray[np.uint32]:
    """Contents of the control block, as far as a call of `rows` reads it."""
    if not rows.blocks:
        words = np.zeros(_PLACES + 4 * rows.total, np.uint32)
        words[:_NEAR] = rows[:_NEAR]
        if rows.singles == 1:
            words[_NEAR:_PLACES] = near_words(places[0].pages)
        if rows.total == 1:
            words[_PLACES:] = places[0].position, places[0].line, 1, 0
            return words
        lists = words[_PLACES:].reshape(-1, 4)
        lists[:, 0] = [place.position for place in places]
        lists[:, 1] = [place.line for place in places]
        lists[:, 2] = np.arange(1, rows.total + 1)
        lists[:, 3] = np.arange(rows.total)
        return words
    words = np.zeros(CONTROL_BYTES // 4, np.uint32)
    words[:_NEAR] = rows[:_NEAR]
    if rows.singles == 1:
        words[_NEAR:_PLACES] = near_words(places[0].pages)
    counts = np.array([place.rows for place in places], np.int64)
    ends = counts.cumsum()
    lists = words[_PLACES:_OWNERS].reshape(-1, 4)[: len(places)]
    lists[:, 0] = [place.position for place in places]
    lists[:, 1] = [place.line for place in places]
    lists[:, 2] = ends
    lists[:, 3] = ends - counts
    owners = words[_OWNERS:_STARTS].view(np.uint16)
    owners[: rows.total] = np.repeat(np.arange(len(places)), counts)[: len(owners)]
    blocks = -(-counts[rows.singles :] // each)
    within = np.arange(rows.blocks) - np.repeat(blocks.cumsum() - blocks, blocks)
    firsts = np.repeat((ends - counts)[rows.singles :], blocks)
    starts = words[_STARTS:]
    starts[: rows.blocks] = (firsts + within * each | firsts << 16)[: len(starts)]
    return words


def gathered_words(words: NDArray[np.uint32], rows: Sequence[int]) -> NDArray[np.uint32]:
    """Contents of a control block for some rows of the call described by another one; no row is in a block."""
    numbers = np.array(rows[:PLACES], np.int64)
    owners = numbers
    if words[_BLOCKS]:
        listed = words[_OWNERS:_STARTS].view(np.uint16)
        owners = listed[np.minimum(numbers, len(listed) - 1)]
    places = words[_PLACES : min(_OWNERS, len(words))].reshape(-1, 4)[owners]
    places[:, 0] += (numbers - places[:, 3]).astype(np.uint32)
    places[:, 3] = np.arange(len(places))
    header = np.zeros(_PLACES, np.uint32)
    header[0] = len(rows)
    return np.concatenate([header, places.reshape(-1)])


def near_words(pages: Sequence[int]) -> NDArray[np.uint32]:
    """The first pages of a sequence, as stored for a call of one row."""
    words = np.zeros(NEAR_PAGES, np.uint32)
    words[: len(pages)] = pages[:NEAR_PAGES]
    return words


def consecutive_runs(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count) of consecutive runs."""
    if rows and rows[-1] - rows[0] == len(rows) - 1:
        return [(rows[0], len(rows))]
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs
