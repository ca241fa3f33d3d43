"""Composition of calls of several sequences: their rows, the order of rows, and the control block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.kernels.dispatch import CallRows, ceil_div
from volumetric.run.call_batch import RowSpan, deal_spans

PLACES = 512
"""Rows whose places a control block lists, as in the shaders."""
_NEAR = 4
NEAR_PAGES = 56
_PLACES = _NEAR + NEAR_PAGES
_STARTS = _PLACES + 4 * PLACES
NEAR_BYTES = 4 * _NEAR
"""Start of the list of near pages."""
CONTROL_BYTES = 4 * (_STARTS + PLACES)


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
    lengths: Sequence[int], most: int, *, apart: bool, whole: bool = False, each: int | None = None
) -> list[list[RowSpan]]:
    """Split the rows of sequences, `lengths` each, into calls of at most `most` rows, single rows first.

    Parameters
    ----------
    apart : each sequence has separate calls
    whole : sequences, of `most` rows at most, are not split
    each : maximum rows of a sequence in a call, see `Graph.piece`
    """
    if whole and not apart:
        most = min(most, PLACES)  # a sequence alone in a call may have more rows than the list
    order = sorted(range(len(lengths)), key=lambda i: lengths[i] > 1)
    groups = [[piece] for piece in order] if apart else [order]
    dealt = (
        [RowSpan(group[span.sequence], span.start, span.stop) for span in call]
        for group in groups
        for call in deal_spans([lengths[piece] for piece in group], most, split=not whole, each=each)
    )
    return [sorted(call, key=lambda span: len(span) > 1) for call in dealt]


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
    lists, at, starts = words[_PLACES:_STARTS].reshape(-1, 4), 0, []
    for number, place in enumerate(places):
        part = lists[at : at + place.rows]  # for a call longer than the list, its beginning
        part[:, 0] = place.position + np.arange(len(part))
        part[:, 1:3] = place.line, at + place.rows
        lists[number, 3] = at
        if number >= rows.singles:
            starts += [row | at << 16 for row in range(at, at + place.rows, each)][:PLACES]
        at += place.rows
    words[_STARTS : _STARTS + len(starts)] = starts[:PLACES]
    return words


def gathered_words(words: NDArray[np.uint32], rows: Sequence[int]) -> NDArray[np.uint32]:
    """Contents of a control block for some rows of the call described by another one; no row is in a block."""
    places = words[_PLACES : min(_STARTS, len(words))].reshape(-1, 4)
    at = np.minimum(rows, len(places) - 1)
    gathered = places[at]
    gathered[:, 0] += np.asarray(rows, np.uint32) - at.astype(np.uint32)
    header = np.zeros(_PLACES, np.uint32)
    header[0] = len(rows)
    return np.concatenate([header, gathered[:PLACES].reshape(-1)])


def near_words(pages: Sequence[int]) -> NDArray[np.uint32]:
    """The first pages of a sequence, as stored for a call of one row."""
    words = np.zeros(NEAR_PAGES, np.uint32)
    words[: len(pages)] = pages[:NEAR_PAGES]
    return words


def consecutive_runs(rows: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count) of consecutive runs."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((row, 1))
    return runs
