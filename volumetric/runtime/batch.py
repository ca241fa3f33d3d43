"""Calls of several sequences: what all devices check, and the plain way to run them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, ShapeError, SpecError
from volumetric.network import INPUT, OUTPUT
from volumetric.runtime.device import Constant, Executable, Found, Piece, RunOptions, State, output_of
from volumetric.runtime.logits import most_likely
from volumetric.runtime.parts import Part, Span, handed_back
from volumetric.runtime.plan import Plan
from volumetric.runtime.state import check_inputs, check_room, check_tokens, check_vocabulary


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


def check_pieces(plan: Plan, pieces: Sequence[Piece], context: int) -> list[Part]:
    """Return the pieces of a call with their rows in the dtypes of the plan's inputs.

    Raises
    ------
    ShapeError : there is no piece, or rows are not what the plan reads
    SpecError : a piece wants an output that the plan does not have
    GenerationError : a state is named twice or has no room, or an id is outside of the vocabulary
    """
    if not pieces:
        raise ShapeError("a call needs at least one piece, got none")
    check_once([piece.state for piece in pieces])
    parts = [
        Part(piece.state, piece.wanted, check_inputs(plan, piece.x), _outputs(plan, piece.outputs)) for piece in pieces
    ]
    for name, value in plan.inputs.items():
        if plan.values[value].dtype == "int32":
            _check_vocabulary_once(plan, [part.given[name] for part in parts], name)
    for part in parts:
        check_room(part.state.position, len(part), context)
    return parts


def _outputs(plan: Plan, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return the outputs that a piece asks for, in the plan's order."""
    if asked is None:
        return tuple(plan.outputs)
    unknown = [] if isinstance(asked, str) else [str(name)[:64] for name in asked if name not in plan.outputs]
    if unknown or isinstance(asked, str) or not asked:
        what = f"no output is called {unknown[0]!r}" if unknown else f"outputs={asked!r} is no tuple of names"
        raise SpecError(what, hint=f'the network has {", ".join(plan.outputs)}; wanted="none" asks for none of them')
    return tuple(name for name in plan.outputs if name in asked)


def _check_vocabulary_once(plan: Plan, rows: Sequence[NDArray[Any]], name: str) -> None:
    """As `check_vocabulary` of each, at the price of one."""
    try:
        check_vocabulary(plan, np.concatenate(rows), name)
    except GenerationError:
        for x in rows:  # whose place in its own rows the error tells
            check_vocabulary(plan, x, name)


def check_once(states: Sequence[State]) -> None:
    """Raise `GenerationError` if a state is named twice."""
    if len({id(state) for state in states}) < len(states):
        raise GenerationError("a sequence occurs twice in the batch", hint="use state.fork()")


class RunsParts(Protocol):
    """An executable that runs one piece at a time."""

    @property
    def options(self) -> RunOptions:
        """What it was compiled with."""
        ...

    def run_part(self, part: Part) -> Mapping[str, F32Array]:
        """Append the rows of a piece to its state; returns the outputs that it wants, of its last row or of all."""
        ...


def run_each(executable: RunsParts, plan: Plan, pieces: Sequence[Piece]) -> list[Found]:
    """Check `pieces` and run them one after the other."""
    found: list[Found] = []
    for part in check_pieces(plan, pieces, executable.options.context):
        made = executable.run_part(part)
        rows = slice(0) if part.wanted == "none" else slice(None)
        found.append(handed_back(plan, part, {name: value[rows] for name, value in made.items()}))
    return found


def greedy_each(
    executable: Executable,
    plan: Plan,
    states: Sequence[State],
    tokens: Sequence[int],
    constant: Constant | None = None,
) -> Generator[list[int]]:
    """Feed `tokens`, yield the arg max of each sequence's logits, feed those, and so on."""
    more = check_tokens(plan, tokens, constant)
    beside = [{name: rows[i : i + 1] for name, rows in more.items()} for i in range(len(states))]
    while True:
        fed = [
            Piece(state, {INPUT: np.array([token], np.int64), **own}, outputs=(OUTPUT,))
            for state, token, own in zip(states, tokens, beside, strict=True)
        ]
        found = map(output_of, executable.run(fed))
        tokens = [most_likely(logits[-1], sequence=place) for place, logits in enumerate(found)]
        yield list(tokens)


def greedy_ids(executable: Executable, state: State, token: int) -> Generator[int, None, None]:
    """`Executable.greedy` of one sequence; closing it closes the device's iterator, which may have run ahead."""
    with closing(executable.greedy([state], [token])) as stream:
        for found in stream:
            yield found[0]
