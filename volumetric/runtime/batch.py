"""Calls of several sequences: what all devices check, and the plain way to run them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import GenerationError, ShapeError
from volumetric.runtime.device import Executable, Piece, State
from volumetric.runtime.logits import most_likely
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_input, check_room, check_vocabulary


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` … `stop` of piece number `piece`."""

    piece: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def deal(lengths: Sequence[int], most: int, *, cut: bool = True, each: int | None = None) -> Iterator[list[Span]]:
    """Deal pieces of `lengths` rows out to device calls of at most `most` rows, in their order.

    Parameters
    ----------
    cut : a piece may be cut; otherwise each runs whole, however many rows it has
    each : rows that a call may have of one piece, see `Graph.piece`; None: any number
    """
    if each is not None:
        yield from _rounds(lengths, most, min(each, most))
        return
    spans: list[Span] = []
    room = most
    for piece, length in enumerate(lengths):
        start = 0
        while start < length:
            rows = length - start
            if cut:
                rows = min(rows, room)
            elif spans and rows > room:
                rows = 0
            if rows:
                spans.append(Span(piece, start, start + rows))
                start, room = start + rows, room - rows
            if room <= 0 or not rows:
                yield spans
                spans, room = [], most
    if spans:
        yield spans


def _rounds(lengths: Sequence[int], most: int, each: int) -> Iterator[list[Span]]:
    """Deal out `each` rows of every piece, then the next ones."""
    for start in range(0, max(lengths), each):
        spans = [Span(i, start, min(start + each, n)) for i, n in enumerate(lengths) if n > start]
        together = max(most // each, 1)
        yield from (spans[at : at + together] for at in range(0, len(spans), together))


def check_pieces(plan: Plan, pieces: Sequence[Piece], context: int) -> list[NDArray[Any]]:
    """Return the rows of each piece in the dtype of the plan's input.

    Raises
    ------
    ShapeError : there is no piece, or rows are not what the plan reads
    GenerationError : a state is named twice or has no room, or an id is outside of the vocabulary
    """
    if not pieces:
        raise ShapeError("a call needs at least one piece, got none")
    check_once([piece.state for piece in pieces])
    rows = [check_input(plan, piece.x) for piece in pieces]
    if rows[0].dtype == np.int32:
        _check_vocabulary_once(plan, rows)
    for piece, x in zip(pieces, rows, strict=True):
        check_room(piece.state.position, len(x), context)
    return rows


def _check_vocabulary_once(plan: Plan, rows: Sequence[NDArray[Any]]) -> None:
    """As `check_vocabulary` of each, at the price of one."""
    try:
        check_vocabulary(plan, np.concatenate(rows))
    except GenerationError:
        for x in rows:  # whose place in its own rows the error tells
            check_vocabulary(plan, x)


def check_once(states: Sequence[State]) -> None:
    """Raise `GenerationError` if a state is named twice."""
    if len({id(state) for state in states}) < len(states):
        raise GenerationError("a sequence occurs twice in the batch", hint="use state.fork()")


def run_each(executable: Executable, plan: Plan, pieces: Sequence[Piece]) -> list[NDArray[np.float32]]:
    """Check `pieces` and run them one after the other."""
    rows = check_pieces(plan, pieces, executable.options.context)
    found = []
    for piece, x in zip(pieces, rows, strict=True):
        out = executable.forward(piece.state, x, last_only=piece.wanted != "all")
        found.append(out[:0] if piece.wanted == "none" else out)
    return found


def greedy_each(executable: Executable, states: Sequence[State], tokens: Sequence[int]) -> Generator[list[int]]:
    """Feed `tokens`, yield the arg max of each sequence's logits, feed those, and so on."""
    while True:
        fed = [Piece(state, np.array([token], np.int64)) for state, token in zip(states, tokens, strict=True)]
        tokens = [most_likely(logits[-1], sequence=place) for place, logits in enumerate(executable.run(fed))]
        yield list(tokens)


def greedy_ids(executable: Executable, state: State, token: int) -> Generator[int, None, None]:
    """`Executable.greedy` of one sequence; closing it closes the device's iterator, which may have run ahead."""
    with closing(executable.greedy([state], [token])) as stream:
        for found in stream:
            yield found[0]
