"""Recordings of one graph by call size, bound to the present buffers, and the control blocks they read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.call_schedule import (
    CONTROL_BYTES,
    NEAR_BYTES,
    PLACES,
    SequenceSpan,
    control_words,
    count_rows,
    near_words,
)
from volumetric.devices.gpu.command_list import GpuRecording, RecordedDispatch, entry, recording
from volumetric.devices.gpu.draw_plans import DrawPlans, Ways, pick_entries
from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder
from volumetric.devices.gpu.gpu_commands import Executor, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch, GpuContext
from volumetric.devices.gpu.gpu_subgraphs import GpuSubgraphs
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.dispatch import CallRows, Dispatch, power_of_two
from volumetric.devices.gpu.value_buffers import ValueBuffers, row_words
from volumetric.network import INPUT, OUTPUT
from volumetric.run.graph.partition import Partition

if TYPE_CHECKING:
    from volumetric.graph.ops import Graph

Needed: TypeAlias = tuple[range, ...]
"""The needed parts, see `Partition.needed`."""


class _RecordingKey(NamedTuple):
    """Part of the graph, maximum rows, maximum single rows, rows of each sequence if relevant, and needed parts."""

    part: str
    rows: int
    singles: int
    lengths: tuple[int, ...]
    needed: Needed


_KEPT = 256
"""Maximum number of recordings kept."""
_NOBODY = SequenceSpan(0, 0, 1)


class RecordingCache:
    """The recordings that an executable replays.

    Parameters
    ----------
    context, executor : the open GPU, and the encoder of commands
    scratch : values of the graph
    recorder : records its nodes on rows
    cut : its segments
    cores : records the segments between them
    buffers : returns the present buffers by their names in recordings

    Attributes
    ----------
    owner : the decoding loop to which the control block belongs; None after any other call
    most_singles : maximum number of sequences with one row each in a call
    whole : whether a call has all rows of a sequence
    apart : whether a call has the rows of only one sequence
    block : rows that attention of prompts processes at once
    inputs : name → tensor
    input, output : tensors with these names; decoding computes one from the other
    drawing : buffers for sampling
    """

    def __init__(
        self,
        context: GpuContext,
        executor: Executor,
        scratch: ValueBuffers,
        recorder: RowRecorder,
        partition: Partition,
        cores: GpuSubgraphs,
        buffers: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.context = context
        self.executor = executor
        self.scratch = scratch
        self.graph: Graph
        self.graph = graph = recorder.graph
        self.inputs: dict[str, int] = partition.inputs
        self.input: int = partition.inputs[INPUT]
        self.output: int = partition.outputs[OUTPUT]
        self.owner: object | None = None
        self.whole: bool = recorder.attention.whole or graph.whole_sequences
        self.apart: bool = self.whole and bool(cores)
        self.block: int = recorder.attention.block
        self._partition, self._subgraphs = partition, cores
        self.most_singles: int = min(scratch.rows, scratch.tail_rows, PLACES) if not self.whole else 1
        self._recorder = recorder
        self._buffers = buffers
        self._control = scratch.make(CONTROL_BYTES, "control", uniform=True)
        self._tail_control = scratch.make(CONTROL_BYTES, "tail control", uniform=True)
        self._entries: dict[_RecordingKey, list[RecordedDispatch]] = {}
        self._calls: dict[_RecordingKey, list[BoundDispatch]] = {}
        self._prepared: dict[_RecordingKey, Any] = {}
        self._picks: dict[tuple[Ways | None, str], list[BoundDispatch]] = {}
        self.drawing: DrawPlans = DrawPlans(context, graph.tensors[self.output].width, self.most_singles)
        self._winners = ""

    def place_rows(self, places: Sequence[SequenceSpan]) -> tuple[CallRows, NDArray[np.uint32]]:
        """Describe a call in the control block; returns its rows, and the words of the block."""
        rows = self.count(places)
        words = control_words(places, rows, self.block)
        self.context.write(self.scratch.buffers[self._control], words)
        self.owner = None
        return rows, words

    def place_near(self, pages: Sequence[int]) -> None:
        """Update the page numbers of a decoding loop of one sequence."""
        self.context.write(self.scratch.buffers[self._control], near_words(pages), NEAR_BYTES)

    def place_tail(self, words: NDArray[np.uint32]) -> None:
        """Write the control block of the rows that the tail selects from a call."""
        self.context.write(self.scratch.buffers[self._tail_control], words)

    def write(self, value: int, x: NDArray[Any]) -> None:
        """Write the rows of a value to the graph's input buffer."""
        flat = x.reshape(len(x), -1)
        columns = row_words(self.graph.tensors[value])
        if columns != flat.shape[1]:
            flat = np.pad(flat, ((0, 0), (0, columns - flat.shape[1])))
        self.context.write(self.scratch.buffers[self.scratch.values[value]], flat)

    def count(self, places: Sequence[SequenceSpan]) -> CallRows:
        """Rows of a call."""
        rows = count_rows(places, self.block, singles=not self.whole)
        return rows._replace(lengths=tuple(place.rows for place in places)) if self._subgraphs else rows

    def calls(self, part: str, rows: CallRows, needed: Needed | None = None) -> list[BoundDispatch]:
        """Dispatches of ``"body"``, ``"tail"`` or ``"whole"`` for up to so many rows, after rounding up.

        Only the `needed` ones, if passed.
        """
        key = self._key(part, rows, needed)
        if key not in self._calls:
            while len(self._calls) >= _KEPT:
                oldest = next(iter(self._calls))
                for cache in (self._calls, self._entries, self._prepared):
                    cache.pop(oldest, None)
            self._calls[key] = self.context.bind_all(self.entries(part, rows, needed), self._buffers())
        return self._calls[key]

    def entries(self, part: str, rows: CallRows, needed: Needed | None = None) -> list[RecordedDispatch]:
        """The same as unbound entries."""
        key = self._key(part, rows, needed)
        if key not in self._entries:
            tail = part == "tail"
            values = {**self.scratch.values, **self.scratch.gathered} if tail else self.scratch.values
            control = self._tail_control if tail else self._control
            entries: list[RecordedDispatch] = []
            segments = (one for one in self._partition.segments_of(key.needed) if part == "whole" or one.tail == tail)
            for on_rows, parts in groupby(segments, key=lambda one: one.graph is None):
                if on_rows:
                    nodes = [node for one in parts for node in one.nodes]
                    frame = RecordingFrame(
                        nodes=nodes, rows=key.rows, singles=key.singles, control=control, values=values
                    )
                    entries += self._recorder.record(frame)
                    continue
                for one in parts:
                    entries += self._subgraphs.entries(one, key.lengths, values, control)
            self._entries[key] = entries
        return self._entries[key]

    def needed_segments(self, outputs: Iterable[int]) -> Needed:
        """Return the parts of the graph needed for some outputs."""
        return self._partition.needed_uses(outputs)

    def as_recording(self, part: str, rows: CallRows) -> GpuRecording:
        """The same in a form that can be written to a file, with the sizes of the buffers."""
        return recording(self.entries(part, rows), self._buffers())

    def one_row(self) -> list[BoundDispatch]:
        """Dispatches of a call of one row."""
        return self.calls("whole", self.count([_NOBODY]))

    def pass_of(self, part: str, rows: CallRows, needed: Needed | None = None) -> PassCommand:
        """Record a pass over these dispatches."""
        return PassCommand(self._prepare(self._key(part, rows, needed), lambda: self.calls(part, rows, needed)), rows)

    def next_tokens(self, rows: CallRows, ways: Ways | None = None) -> PassCommand:
        """One token per sequence: rows through the graph, argmax or sampling, next tokens and positions set."""
        needed = self.needed_segments([self.output])
        key = self._key(f"tokens {ways}", rows, needed)
        return PassCommand(
            self._prepare(key, lambda: [*self.calls("whole", rows, needed), *self._pick_calls(ways, self._control)]),
            rows,
        )

    def picks(self, rows: int, ways: Ways | None) -> PassCommand:
        """Sample from the first rows of the tail; tokens replace those of the call."""
        counted = CallRows(rows)
        key = self._key(f"picks {ways}", counted, ())
        return PassCommand(self._prepare(key, lambda: self._pick_calls(ways, self._tail_control)), counted)

    def pass_over(
        self, name: str, rows: CallRows, dispatches: Callable[[], Iterable[Dispatch]], buffers: Mapping[str, str]
    ) -> PassCommand:
        """Record a pass, once under this name, over dispatches that read what the graph has computed for the rows.

        Parameters
        ----------
        buffers : the shaders' names of their buffers → ours, see `spare`
        """
        key = _RecordingKey(name, 0, 0, (), ())

        def calls() -> list[BoundDispatch]:
            entries = [entry(dispatch, buffers, control=self._control) for dispatch in dispatches()]
            return self.context.bind_all(entries, self._buffers())

        return PassCommand(self._prepare(key, calls), rows)

    def spare(self, nbytes: int, label: str) -> str:
        """Return a buffer for results of such passes, shared by all callers with this label."""
        return self._recorder.spare(nbytes, label)

    @property
    def control_block(self) -> tuple[Any, int]:
        """The control block of calls, and the rows of a block of a sequence with several rows."""
        return self.scratch.buffers[self._control], self.block

    def pick_calls(self, ways: Ways | None) -> list[BoundDispatch]:
        """Argmax or sampling from the rows of a call; the room for sampling must be reserved."""
        return self._pick_calls(ways, self._control)

    @property
    def tokens(self) -> Any:
        """The buffer of the next tokens."""
        return self.scratch.buffers[self.scratch.values[self.input]]

    def drop(self, begun: Any) -> None:
        """Drop encoded commands. wgpu leaks finished ones unless they run, so they run once, on unused pages."""
        if not self.executor.must_be_sent(begun):
            self.executor.discard(begun)
            return
        self.owner = None
        words = np.zeros(CONTROL_BYTES // 4, np.uint32)
        nobody = control_words([_NOBODY], self.count([_NOBODY]), self.block)
        words[: len(nobody)] = nobody
        try:
            self.context.write(self.scratch.buffers[self._control], words)
            self.executor.send(begun)
        except DeviceError:
            return  # the GPU is lost, with all its resources

    def unbind(self) -> None:
        """Release all buffers, some of which will be replaced. Tokens in flight are lost."""
        self.owner = None
        self._calls.clear()
        self._prepared.clear()
        self._picks.clear()

    def drop_all(self) -> None:
        """Drop all recordings, which are outdated."""
        self.unbind()
        self._entries.clear()

    def _prepare(self, key: _RecordingKey, calls: Callable[[], list[BoundDispatch]]) -> Any:
        if key not in self._prepared:
            self._prepared[key] = self.executor.prepare(calls())
        return self._prepared[key]

    def _pick_calls(self, ways: Ways | None, control: str) -> list[BoundDispatch]:
        """Argmax of the output rows, or sampling from them."""
        key = ways, control
        if key not in self._picks:
            width, values = self.graph.tensors[self.output].width, self.scratch.values
            if not self._winners:
                self._winners = self.scratch.make(8 * self.most_singles * elementwise.ARGMAX_GROUPS, "winners")
            names = {"x": values[self.output], "winners": self._winners, "token": values[self.input]}
            entries = pick_entries(width, ways, names, control)
            self._picks[key] = self.context.bind_all(entries, {**self._buffers(), **self.drawing.buffers})
        return self._picks[key]

    def _key(self, part: str, rows: CallRows, needed: Needed | None) -> _RecordingKey:
        """Key that identifies a recording.

        Recordings are reused for any number of rows up to the next power of two, and beyond single rows if any has
        more; with segments that do not run on rows, only for exactly the lengths they were made for.
        """
        singles = power_of_two(rows.singles) if rows.singles else 0
        lengths = (rows.lengths or (rows.total,)) if self._subgraphs else ()
        most = max(power_of_two(rows.total), 2 * singles if rows.multi_rows else 0)
        uses = (range(len(self._partition.uses)),) if needed is None else needed
        return _RecordingKey(part, most, singles, lengths, uses)
