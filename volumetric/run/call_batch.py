"""Calls of several sequences: checks and results shared by all devices, and a loop that runs one after the other."""

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
from volumetric.run.device import (
    Constant,
    Executable,
    OutputRows,
    RowOutputs,
    RunOptions,
    SequenceRows,
    State,
    output_of,
)
from volumetric.run.logits import argmax_token
from volumetric.run.plan import Plan
from volumetric.run.sequence_state import check_capacity, check_inputs, check_tokens, check_vocabulary


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Rows `start` … `stop` of sequence number `piece` of a call."""

    sequence: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class CheckedRows:
    """A `SequenceRows` after checks, as devices take it.

    Attributes
    ----------
    state, output_rows : of the `SequenceRows`
    inputs : rows by the plan's inputs, in their order and dtypes
    outputs : names of the returned outputs, in the plan's order
    """

    state: Any
    output_rows: OutputRows
    inputs: Mapping[str, NDArray[Any]]
    outputs: tuple[str, ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.inputs.values())))

    @property
    def count(self) -> int:
        """Number of rows whose outputs are returned."""
        return {"all": len(self), "last": 1, "none": 0}[self.output_rows]

    def rows(self, span: RowSpan) -> range:
        """Return which rows of a span have returned outputs, by index in the span."""
        if self.output_rows == "all":
            return range(len(span))
        return range(len(span) - (self.output_rows == "last" and span.stop == len(self)), len(span))


def named_outputs(plan: Plan, part: CheckedRows, outputs: Mapping[str, F32Array]) -> RowOutputs:
    """Return the result of one sequence: its outputs by name, or the only output of the plan."""
    if len(plan.outputs) == 1:
        return outputs[OUTPUT]
    return {name: outputs[name] for name in part.outputs}


class CallOutputs:
    """The results of a call, collected from device calls over spans of its sequences.

    Attributes
    ----------
    rows : output → rows of all sequences that request it, concatenated, ``[rows, width]``
    """

    def __init__(self, plan: Plan, parts: Sequence[CheckedRows]) -> None:
        self._plan, self._parts = plan, parts
        counts = {name: [part.count if name in part.outputs else 0 for part in parts] for name in plan.outputs}
        self._starts = {name: list(accumulate(rows, initial=0)) for name, rows in counts.items()}
        widths = {name: plan.values[i].width for name, i in plan.outputs.items()}
        self.rows: dict[str, F32Array] = {
            name: np.empty((self._starts[name][-1], width), np.float32) for name, width in widths.items()
        }

    def requested_rows(self, spans: Sequence[RowSpan]) -> dict[str, list[int]]:
        """Return output → its requested rows in a device call of `spans`, by index in that call, ascending."""
        rows_by_output: dict[str, list[int]] = {}
        first = 0
        for span in spans:
            part = self._parts[span.sequence]
            rows = part.rows(span)
            if rows:
                for name in part.outputs:
                    rows_by_output.setdefault(name, []).extend(range(first + rows.start, first + rows.stop))
            first += len(span)
        return {name: rows_by_output[name] for name in self._plan.outputs if name in rows_by_output}

    def result_places(self, spans: Sequence[RowSpan], name: str) -> slice | list[int]:
        """Return the indices of these rows in `rows`; a slice if they are contiguous."""
        places: list[int] = []
        for span in spans:
            part, start = self._parts[span.sequence], self._starts[name][span.sequence]
            if name not in part.outputs:
                continue
            if part.output_rows == "all":
                places += range(start + span.start, start + span.stop)
            else:
                places += [start] * len(part.rows(span))
        return slice(places[0], places[-1] + 1) if places == list(range(places[0], places[-1] + 1)) else places

    def store_rows(self, spans: Sequence[RowSpan], outputs: Mapping[str, NDArray[np.float32]]) -> None:
        """Store the results of a device call of `spans`: the rows of `wanted`, in order."""
        for name, values in outputs.items():
            self.rows[name][self.result_places(spans, name)] = values.reshape(len(values), -1)

    @property
    def by_sequence(self) -> list[RowOutputs]:
        """Result of each sequence."""
        split = {name: self._split(name) for name in self._plan.outputs}
        return [
            named_outputs(self._plan, part, {name: split[name][i] for name in part.outputs})
            for i, part in enumerate(self._parts)
        ]

    def _split(self, name: str) -> list[F32Array]:
        shape = self._plan.values[self._plan.outputs[name]].shape[1:]
        rows = self.rows[name].reshape(-1, *shape)
        return [rows[start:end] for start, end in pairwise(self._starts[name])]


def gather_rows_of_spans(parts: Sequence[CheckedRows], spans: Sequence[RowSpan], name: str) -> NDArray[Any]:
    """Return the rows of an input for a device call of `spans`."""
    rows = [parts[span.sequence].inputs[name][span.start : span.stop] for span in spans]
    return rows[0] if len(rows) == 1 else np.concatenate(rows)


def advance_states(parts: Sequence[CheckedRows], spans: Sequence[RowSpan]) -> None:
    """Move the state of each sequence past the rows that a device call has computed."""
    for span in spans:
        parts[span.sequence].state.advance(len(span))


def deal_spans(
    lengths: Sequence[int], most: int, *, split: bool = True, each: int | None = None
) -> Iterator[list[RowSpan]]:
    """Split sequences of `lengths` rows into device calls of at most `most` rows, in order.

    Parameters
    ----------
    split : a sequence may be split; otherwise each runs whole, even if it has more rows
    each : most rows of one sequence per call, see `Graph.piece`; None: any number
    """
    if each is not None:
        yield from _rounds(lengths, most, min(each, most))
        return
    spans: list[RowSpan] = []
    room = most
    for piece, length in enumerate(lengths):
        start = 0
        while start < length:
            rows = length - start
            if split:
                rows = min(rows, room)
            elif spans and rows > room:
                rows = 0
            if rows:
                spans.append(RowSpan(piece, start, start + rows))
                start, room = start + rows, room - rows
            if room <= 0 or not rows:
                yield spans
                spans, room = [], most
    if spans:
        yield spans


def _rounds(lengths: Sequence[int], most: int, each: int) -> Iterator[list[RowSpan]]:
    """Yield calls with `each` rows of every sequence, then with the next ones."""
    for start in range(0, max(lengths), each):
        spans = [RowSpan(i, start, min(start + each, n)) for i, n in enumerate(lengths) if n > start]
        together = max(most // each, 1)
        yield from (spans[at : at + together] for at in range(0, len(spans), together))


def check_sequence_rows(plan: Plan, pieces: Sequence[SequenceRows], context: int) -> list[CheckedRows]:
    """Check a call and convert its rows to the dtypes of the plan's inputs.

    Raises
    ------
    ShapeError : the call is empty, or rows do not match the plan's inputs
    SpecError : an unknown output is requested
    GenerationError : a state is passed twice or has no room, or an id is outside of the vocabulary
    """
    if not pieces:
        raise ShapeError("a call needs the rows of at least one sequence, got none")
    check_once([piece.state for piece in pieces])
    parts = [
        CheckedRows(piece.state, piece.output_rows, check_inputs(plan, piece.x), _outputs(plan, piece.outputs))
        for piece in pieces
    ]
    for name, value in plan.inputs.items():
        if plan.values[value].dtype == "int32":
            _check_vocabulary_once(plan, [part.inputs[name] for part in parts], name)
    for part in parts:
        check_capacity(part.state.position, len(part), context)
    return parts


def _outputs(plan: Plan, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested outputs in the plan's order."""
    if names is None:
        return tuple(plan.outputs)
    unknown = [] if isinstance(names, str) else [str(name)[:64] for name in names if name not in plan.outputs]
    if unknown or isinstance(names, str) or not names:
        what = f"unknown output {unknown[0]!r}" if unknown else f"outputs must be a tuple of names, got {names!r}"
        raise SpecError(what, hint=f'the network has {", ".join(plan.outputs)}; output_rows="none" requests no output')
    return tuple(name for name in plan.outputs if name in names)


def _check_vocabulary_once(plan: Plan, rows: Sequence[NDArray[Any]], name: str) -> None:
    """Run `check_vocabulary` for all sequences at the cost of one."""
    try:
        check_vocabulary(plan, np.concatenate(rows), name)
    except GenerationError:
        for x in rows:  # for the error, which has the position within the sequence
            check_vocabulary(plan, x, name)


def check_once(states: Sequence[State]) -> None:
    """Raise `GenerationError` if a state is passed twice."""
    if len({id(state) for state in states}) < len(states):
        raise GenerationError("a sequence occurs twice in the batch", hint="use state.fork()")


class RunsParts(Protocol):
    """An executable that runs one sequence at a time."""

    @property
    def options(self) -> RunOptions:
        """Options that it was compiled with."""
        ...

    def run_part(self, part: CheckedRows) -> Mapping[str, F32Array]:
        """Append rows to a state; return the requested outputs of the last row or of all rows."""
        ...


def run_each(executable: RunsParts, plan: Plan, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
    """Check `pieces` and run them one after the other."""
    results: list[RowOutputs] = []
    for part in check_sequence_rows(plan, pieces, executable.options.context):
        outputs = executable.run_part(part)
        rows = slice(0) if part.output_rows == "none" else slice(None)
        results.append(named_outputs(plan, part, {name: value[rows] for name, value in outputs.items()}))
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
            SequenceRows(state, {INPUT: np.array([token], np.int64), **own}, outputs=(OUTPUT,))
            for state, token, own in zip(states, tokens, beside, strict=True)
        ]
        results = map(output_of, executable.run(fed))
        tokens = [argmax_token(logits[-1], sequence=place) for place, logits in enumerate(results)]
        yield list(tokens)


def greedy_ids(executable: Executable, state: State, token: int) -> Generator[int, None, None]:
    """Run `Executable.greedy` for one sequence; closing it closes the device's iterator, which may have run ahead."""
    with closing(executable.greedy([state], [token])) as stream:
        for ids in stream:
            yield ids[0]
