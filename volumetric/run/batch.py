"""Calls of several sequences: their pieces, what all devices check of these and hand back, and the plain way to run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, ShapeError, SpecError
from volumetric.network import INPUT, OUTPUT
from volumetric.run.device import Constant, Executable, Found, Piece, RunOptions, State, Wanted, output_of
from volumetric.run.logits import most_likely
from volumetric.run.plan import Plan
from volumetric.run.state import check_inputs, check_room, check_tokens, check_vocabulary


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `start` … `stop` of piece number `piece`."""

    piece: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A piece as devices take it.

    Attributes
    ----------
    state, wanted : of the piece
    given : rows by the plan's inputs, in their order and dtypes
    outputs : names of the outputs that are handed back, in the plan's order
    """

    state: Any
    wanted: Wanted
    given: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]

    def __len__(self) -> int:
        """Rows."""
        return len(next(iter(self.given.values())))

    @property
    def count(self) -> int:
        """Rows that have outputs."""
        return {"all": len(self), "last": 1, "none": 0}[self.wanted]

    def rows(self, span: Span) -> range:
        """Rows of a span of it that have outputs, by their number in the span."""
        if self.wanted == "all":
            return range(len(span))
        return range(len(span) - (self.wanted == "last" and span.stop == len(self)), len(span))


def handed_back(plan: Plan, part: Part, outputs: Mapping[str, F32Array]) -> Found:
    """What a piece gets: its outputs by name, or the one that the plan has."""
    if len(plan.outputs) == 1:
        return outputs[OUTPUT]
    return {name: outputs[name] for name in part.outputs}


class Handed:
    """What the pieces of a call are handed back, collected from calls of the device over spans of them.

    Attributes
    ----------
    rows : output → rows of all pieces that want it, one behind the other, ``[rows, width]``
    """

    def __init__(self, plan: Plan, parts: Sequence[Part]) -> None:
        self._plan, self._parts = plan, parts
        counts = {name: [part.count if name in part.outputs else 0 for part in parts] for name in plan.outputs}
        self._starts = {name: list(accumulate(rows, initial=0)) for name, rows in counts.items()}
        widths = {name: plan.values[i].width for name, i in plan.outputs.items()}
        self.rows = {name: np.empty((self._starts[name][-1], width), np.float32) for name, width in widths.items()}

    def wanted(self, spans: Sequence[Span]) -> dict[str, list[int]]:
        """Output → those of its rows that are handed back of a call of `spans`, by their number in it, ascending."""
        rows_by_output: dict[str, list[int]] = {}
        first = 0
        for span in spans:
            part = self._parts[span.piece]
            rows = part.rows(span)
            if rows:
                for name in part.outputs:
                    rows_by_output.setdefault(name, []).extend(range(first + rows.start, first + rows.stop))
            first += len(span)
        return {name: rows_by_output[name] for name in self._plan.outputs if name in rows_by_output}

    def places(self, spans: Sequence[Span], name: str) -> slice | list[int]:
        """Where these rows belong in `rows`; a slice where they follow one another."""
        places: list[int] = []
        for span in spans:
            part, start = self._parts[span.piece], self._starts[name][span.piece]
            if name in part.outputs:
                places += (start + (span.start + i if part.wanted == "all" else 0) for i in part.rows(span))
        return slice(places[0], places[-1] + 1) if places == list(range(places[0], places[-1] + 1)) else places

    def take(self, spans: Sequence[Span], outputs: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over what a call of `spans` made: the rows of `wanted`, in their order."""
        for name, values in outputs.items():
            self.rows[name][self.places(spans, name)] = values.reshape(len(values), -1)

    @property
    def found(self) -> list[Found]:
        """What each piece gets."""
        split = {name: self._split(name) for name in self._plan.outputs}
        return [
            handed_back(self._plan, part, {name: split[name][i] for name in part.outputs})
            for i, part in enumerate(self._parts)
        ]

    def _split(self, name: str) -> list[F32Array]:
        shape = self._plan.values[self._plan.outputs[name]].shape[1:]
        rows = self.rows[name].reshape(-1, *shape)
        return [rows[start:end] for start, end in pairwise(self._starts[name])]


def taken(parts: Sequence[Part], spans: Sequence[Span], name: str) -> NDArray[Any]:
    """Rows of an input that a call of `spans` takes."""
    rows = [parts[span.piece].given[name][span.start : span.stop] for span in spans]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


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


def _outputs(plan: Plan, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the outputs that a piece asks for, in the plan's order."""
    if names is None:
        return tuple(plan.outputs)
    unknown = [] if isinstance(names, str) else [str(name)[:64] for name in names if name not in plan.outputs]
    if unknown or isinstance(names, str) or not names:
        what = f"no output is called {unknown[0]!r}" if unknown else f"outputs={names!r} is no tuple of names"
        raise SpecError(what, hint=f'the network has {", ".join(plan.outputs)}; wanted="none" asks for none of them')
    return tuple(name for name in plan.outputs if name in names)


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
    results: list[Found] = []
    for part in check_pieces(plan, pieces, executable.options.context):
        outputs = executable.run_part(part)
        rows = slice(0) if part.wanted == "none" else slice(None)
        results.append(handed_back(plan, part, {name: value[rows] for name, value in outputs.items()}))
    return results


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
        results = map(output_of, executable.run(fed))
        tokens = [most_likely(logits[-1], sequence=place) for place, logits in enumerate(results)]
        yield list(tokens)


def greedy_ids(executable: Executable, state: State, token: int) -> Generator[int, None, None]:
    """`Executable.greedy` of one sequence; closing it closes the device's iterator, which may have run ahead."""
    with closing(executable.greedy([state], [token])) as stream:
        for ids in stream:
            yield ids[0]
