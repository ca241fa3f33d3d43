"""Core segments on a device: which rows of a call they run on, by programs for how many, and what goes in besides.

A device computes the operations on rows of a network by its own means, and what is between them by programs of fixed
shape. These exist for powers of two of rows, made when first needed: n rows are computed as the powers that n is the
sum of, the largest first. So all calls of up to 512 rows share ten programs, none computes rows that nobody asked for,
and a token is one run. Where a row may look at later ones, the rows of a sequence stay together, their number exact.

Sequences that have a state run apart, or, where a device wants it, those with equal rows side by side: in powers of two
again, by programs that have an axis for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

from volumetric.base._typing import Array
from volumetric.base.errors import DeviceError
from volumetric.graph.binding import bind
from volumetric.graph.open_rows import positions_from
from volumetric.graph.ops import Graph
from volumetric.graph.programs import ProgramCache
from volumetric.graph.side_by_side import runs_side_by_side, side_by_side
from volumetric.run.graph.segments import Segment

CACHED_PROGRAMS = 24
"""Compiled programs of a segment that stay in memory."""
WRITTEN_OUT = 32
"""Rows that a program with a scan has at most: its steps stand one behind the other, and take time to compile."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a call that one run computes: `rows` of them from row `start` on.

    Attributes
    ----------
    piece : number of their sequence in the call; None where rows are strangers, and may be of several
    position : place of the first in its sequence
    sequences : how many run side by side, each with so many rows
    apart : rows from those of a sequence to those of the next
    """

    start: int
    rows: int
    piece: int | None = None
    position: int = 0
    sequences: int = 1
    apart: int = 0

    @property
    def total(self) -> int:
        """Rows of all sequences."""
        return self.rows * self.sequences

    @property
    def gapless(self) -> bool:
        """Whether its rows follow one another in the call."""
        return self.sequences == 1 or self.apart == self.rows


class CallMemory(Protocol):
    """Where the values of a call and the states of its sequences are, as views that may be written."""

    def rows(self, tensor: int, stretch: Stretch) -> Array:
        """Return rows of a value, ``[rows, …]``."""
        ...

    def state(self, tensor: int, piece: int) -> Array:
        """Return a fixed state of a sequence."""
        ...


class Core:
    """A segment of fixed shapes, and its programs.

    Parameters
    ----------
    graph : the whole one, with open rows
    segment : a part of it that has a graph
    compile_it : binds a graph to parameters on the device; gives what `program` returns
    """

    def __init__(self, graph: Graph, segment: Segment, compile_it: Callable[[Graph], Any]) -> None:
        if segment.graph is None:
            raise DeviceError(f"{segment.name} runs on rows and has no graph")
        self.segment = segment
        self.programs = ProgramCache(CACHED_PROGRAMS)
        self._graph = segment.graph
        self._compile = compile_it
        self._states = {i for i in (*segment.inputs, *segment.outputs) if graph.tensors[i].role == "state"}
        self._apart = segment.mixes or bool(self._states or segment.graph.derived)
        # Where a loop is closed, a later row reads what a later segment has yet to make of an earlier one.
        self._whole = graph.whole or graph.piece is not None
        self._most = WRITTEN_OUT if any(node.op == "scan" for node in segment.graph.nodes) else None

    def stretches(self, lengths: Sequence[int], positions: Sequence[int]) -> Iterator[Stretch]:
        """Cut a call, of pieces of `lengths` rows at `positions` of their sequences, into runs."""
        if not self._apart:
            yield from (Stretch(start, rows) for start, rows in powers(sum(lengths), self._most))
            return
        first = 0
        for piece, (length, position) in enumerate(zip(lengths, positions, strict=True)):
            for start, rows in [(0, length)] if self._whole else powers(length, self._most):
                yield Stretch(first + start, rows, piece, position + start)
            first += length

    def grouped(self, lengths: Sequence[int], most: Callable[[int], int]) -> Iterator[Stretch]:
        """Cut a call likewise, neighbouring pieces of equal lengths together, where that has a form.

        Parameters
        ----------
        most : rows of each → sequences that may run side by side
        """
        if not self._apart or not self.side_by_side:
            yield from self.stretches(lengths, [0] * len(lengths))
            return
        first = piece = 0
        for length, group in groupby(lengths):
            count = len(list(group))
            for start, rows in [(0, length)] if self._whole else powers(length, self._most):
                for at, sequences in powers(count, most(rows)):
                    yield Stretch(first + at * length + start, rows, piece + at, start, sequences, length)
            first, piece = first + count * length, piece + count

    @cached_property
    def side_by_side(self) -> bool:
        """Whether several sequences have a common program."""
        return runs_side_by_side(bind(self._graph, 1))

    def bound(self, rows: int, sequences: int = 1) -> Graph:
        """Return the graph for so many rows of each of so many sequences."""
        graph = bind(self._graph, rows)
        return graph if sequences == 1 else side_by_side(graph, sequences)

    def program(self, rows: int, sequences: int = 1) -> Any:
        """Return the program for so many rows."""
        return self.programs.get((rows, sequences), lambda: self._compile(self.bound(rows, sequences)))

    def derived(self, stretch: Stretch) -> dict[int, Array]:
        """Return what follows from the places of the rows: tensor of the whole graph → its value."""
        pairs = zip(self.segment.inputs, self._graph.inputs, strict=True)
        return {i: positions_from(stretch.position, stretch.rows) for i, own in pairs if own in self._graph.derived}

    def run(self, memory: CallMemory, lengths: Sequence[int], positions: Sequence[int]) -> None:
        """Compute a call by programs that take arrays of the host and give such."""
        for stretch in self.stretches(lengths, positions):

            def place(i: int, of: Stretch = stretch) -> Array:
                return memory.rows(i, of) if i not in self._states else memory.state(i, of.piece or 0)

            derived = self.derived(stretch)
            inputs = [derived[i] if i in derived else place(i) for i in self.segment.inputs]
            outputs = self.program(stretch.rows).run(inputs)
            for i, value in zip(self.segment.outputs, outputs, strict=True):
                place(i)[...] = value

    def close(self) -> None:
        """Free the programs."""
        self.programs.clear()


def powers(rows: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Cut rows into powers of two, the largest that are at most `most` first: (start, rows) of each part."""
    start = 0
    while start < rows:
        part = 1 << (min(rows - start, most or rows).bit_length() - 1)
        yield start, part
        start += part
