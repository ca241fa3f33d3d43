"""Fixed-shape subgraphs on a device: splits the rows of a call into runs of programs.

A device has kernels for fused row operations, and runs the subgraphs between them by programs of fixed shape. Programs
are compiled on first use, for row counts that are powers of two: n rows run as the powers that sum to n, the largest
first. All calls of up to 512 rows share ten programs, no padding rows are computed, and a token is one run. If a row
may read later rows, the rows of a sequence stay together, in a program for their exact number.

Sequences with states run separately. A device may also run sequences with equal row counts in one program with an axis
of sequences, again in powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol

from volumetric.base._typing import Array
from volumetric.base.errors import DeviceError
from volumetric.graph.batching import batch_graph, can_batch
from volumetric.graph.binding import bind
from volumetric.graph.open_interpreter import positions_from
from volumetric.graph.ops import Graph
from volumetric.graph.program_cache import ProgramCache
from volumetric.run.graph.partition import Segment

CACHED_PROGRAMS = 24
"""Compiled programs that a segment caches."""
WRITTEN_OUT = 32
"""Most rows of a program with a scan: its steps are unrolled, and take time to compile."""


@dataclass(frozen=True, slots=True)
class SubgraphRun:
    """Rows of a call that one run computes: `rows` rows from row `start`.

    Attributes
    ----------
    sequence : index of their sequence in the call; None for independent rows, possibly of several sequences
    position : position of the first row in its sequence
    sequences : number of sequences in the run, with `rows` rows each
    stride : distance in rows from one sequence to the next
    """

    start: int
    rows: int
    sequence: int | None = None
    position: int = 0
    sequences: int = 1
    stride: int = 0

    @property
    def total(self) -> int:
        """Number of rows of all sequences."""
        return self.rows * self.sequences

    @property
    def gapless(self) -> bool:
        """Whether its rows are contiguous in the call."""
        return self.sequences == 1 or self.stride == self.rows


class CallMemory(Protocol):
    """The values of a call and the states of its sequences, as writable views."""

    def rows(self, tensor: int, run: SubgraphRun) -> Array:
        """Return rows of a value, ``[rows, …]``."""
        ...

    def state(self, tensor: int, piece: int) -> Array:
        """Return a fixed state of a sequence."""
        ...


class Subgraph:
    """A segment that runs by programs of fixed shape.

    Parameters
    ----------
    graph : the whole graph, with open rows
    segment : a segment of it with a graph
    compile_it : binds a graph to parameters on the device; returns the result of `program`
    """

    def __init__(self, graph: Graph, segment: Segment, compile_it: Callable[[Graph], Any]) -> None:
        if segment.graph is None:
            raise DeviceError(f"segment {segment.name} has no graph: it runs as row operations")
        self.segment = segment
        self.programs: ProgramCache = ProgramCache(CACHED_PROGRAMS)
        self._graph = segment.graph
        self._compile = compile_it
        self._states = {i for i in (*segment.inputs, *segment.outputs) if graph.tensors[i].role == "state"}
        self._apart = segment.mixes or bool(self._states or segment.graph.derived)
        # In a loop, a row reads the output of a later segment for an earlier row.
        self._whole = graph.whole_sequences or graph.max_rows is not None
        self._most = WRITTEN_OUT if any(node.op == "scan" for node in segment.graph.nodes) else None

    def runs(self, lengths: Sequence[int], positions: Sequence[int]) -> Iterator[SubgraphRun]:
        """Split a call of sequences with `lengths` rows at `positions` into runs."""
        if not self._apart:
            yield from (SubgraphRun(start, rows) for start, rows in powers(sum(lengths), self._most))
            return
        first = 0
        for piece, (length, position) in enumerate(zip(lengths, positions, strict=True)):
            for start, rows in [(0, length)] if self._whole else powers(length, self._most):
                yield SubgraphRun(first + start, rows, piece, position + start)
            first += length

    def batched_runs(self, lengths: Sequence[int], most: Callable[[int], int]) -> Iterator[SubgraphRun]:
        """Split a call into runs, with neighbouring sequences of equal length in one run if the segment supports it.

        Parameters
        ----------
        most : rows of each sequence → most sequences in one run
        """
        if not self._apart or not self.can_batch:
            yield from self.runs(lengths, [0] * len(lengths))
            return
        first = piece = 0
        for length, group in groupby(lengths):
            count = len(list(group))
            for start, rows in [(0, length)] if self._whole else powers(length, self._most):
                for at, sequences in powers(count, most(rows)):
                    yield SubgraphRun(first + at * length + start, rows, piece + at, start, sequences, length)
            first, piece = first + count * length, piece + count

    @cached_property
    def can_batch(self) -> bool:
        """Whether one program can run several sequences."""
        return can_batch(bind(self._graph, 1))

    def bind_rows(self, rows: int, sequences: int = 1) -> Graph:
        """Return the graph for `rows` rows of each of `sequences` sequences."""
        graph = bind(self._graph, rows)
        return graph if sequences == 1 else batch_graph(graph, sequences)

    def program(self, rows: int, sequences: int = 1) -> Any:
        """Return the program for `rows` rows of each of `sequences` sequences."""
        return self.programs.get((rows, sequences), lambda: self._compile(self.bind_rows(rows, sequences)))

    def derived_inputs(self, run: SubgraphRun) -> dict[int, Array]:
        """Return the inputs derived from the positions of the rows: tensor of the whole graph → its value."""
        pairs = zip(self.segment.inputs, self._graph.inputs, strict=True)
        return {i: positions_from(run.position, run.rows) for i, own in pairs if own in self._graph.derived}

    def run(self, memory: CallMemory, lengths: Sequence[int], positions: Sequence[int]) -> None:
        """Run a call by programs that take and return host arrays."""
        for run in self.runs(lengths, positions):

            def place(i: int, of: SubgraphRun = run) -> Array:
                return memory.rows(i, of) if i not in self._states else memory.state(i, of.sequence or 0)

            derived = self.derived_inputs(run)
            inputs = [derived[i] if i in derived else place(i) for i in self.segment.inputs]
            outputs = self.program(run.rows).run(inputs)
            for i, value in zip(self.segment.outputs, outputs, strict=True):
                place(i)[...] = value

    def close(self) -> None:
        """Free the programs."""
        self.programs.clear()


def powers(rows: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Split rows into powers of two of at most `most`, the largest first: yield (start, rows) of each."""
    start = 0
    while start < rows:
        part = 1 << (min(rows - start, most or rows).bit_length() - 1)
        yield start, part
        start += part
