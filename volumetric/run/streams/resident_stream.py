"""Streams with states of fixed size: one program runs all streams, with the states in its store.

An executable accepts rows of any sequences, for which Python takes 70 µs and more per call; a program for a fixed
number of rows and streams is one native call, including resets. Values that depend only on weights are computed once. A
float32 array with a row count that has run before goes directly to its program, without further checks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.constant_folding import constant_values, split_constants
from volumetric.graph.ops import Graph
from volumetric.graph.program_cache import ProgramCache
from volumetric.network import Network, Params, check_params
from volumetric.network.grid import Coord
from volumetric.run.device import Device
from volumetric.run.graph.network_graph import graph_of, resumed_states
from volumetric.run.kv_value import as_numbers
from volumetric.run.lower import is_endless, looks_ahead, lower
from volumetric.run.state_file import SavedValues, restore_state, save_state
from volumetric.run.stream_buffers import StreamBuffers, StreamBufferSpec
from volumetric.run.streams.node_masks import NodeMasks
from volumetric.run.streams.row_stream import RowStream, with_outputs
from volumetric.run.streams.stream_io import check_streams, outputs_by_port

LONGEST: Final = 128
"""Most rows of one program; longer runs take several programs, for powers of two."""
MOST_NODES: Final = 8192
"""Most nodes of a program with unrolled rows; larger ones get fewer rows: compiling takes 0.1 ms per node, and running
that many nodes takes so long that the overhead of a call does not matter."""


def stays_resident(network: Network, params: Params) -> bool:
    """Return whether a network can run so: float32 weights, states of fixed size, no positions, no later rows."""
    plan = lower(network)
    if not plan.states or not is_endless(plan) or any(looks_ahead(plan, step) for step in plan.steps):
        return False
    if any(str(weight.scheme) != "float32" for weight in params.values()):
        return False
    try:
        resumed = resumed_states(plan)
    except UnsupportedError:
        return False
    return resumed.keys() == plan.states.keys()


class ResidentStream(RowStream):
    """A `RowStream` that runs all streams in one program for each power of two of rows.

    Parameters
    ----------
    graphs : the device for tensor graphs; on a CPU it must be batch-invariant
    device : device for networks that `migrate` continues with and that cannot run so; None: they are refused
    network : a network that `stays_resident`
    batch : number of streams
    """

    def __init__(
        self, graphs: Any, network: Network, params: Params, *, batch: int = 1, device: Device | None = None
    ) -> None:
        if batch < 1:
            raise SpecError(f"a stream needs a batch of 1 or more, got {batch}")
        check_params(network, params)
        self.network: Network = network
        self.batch: int = batch
        self._params, self._device = params, device
        self._graphs, self._store, self._programs = graphs, graphs.store(), ProgramCache()
        for key, value in params.items():
            self._store.write(key, value.values())
        self._node_masks = NodeMasks(network, params)
        self._weights = tuple(sorted(set(self._store.keys()) - set(self._node_masks.values)))
        self._specs = resumed_states(lower(network))
        self._buffers = StreamBuffers(
            self._store, {key: StreamBufferSpec(of.shape) for key, of in self._specs.items()}, batch
        )
        self._rows = np.zeros(batch, np.int64)  # since the start of each stream
        self._longest = LONGEST
        self._quick: dict[Shape, Callable[[Array], Array]] = {}
        self._quick_rows = 0
        self._name_ends()
        self._buffers.write(self._buffers.initial_values(), together=True)

    def _name_ends(self) -> None:
        network = self.network
        self._inputs, self._outputs = tuple(network.ports), tuple(network.taps)
        self._nothing = [np.zeros((self.batch, 0, *network.shapes[c][1:]), np.float32) for c in network.taps.values()]

    def run(self, x: Array | Mapping[str, Array], *, resets: Array | None = None) -> Array | dict[str, Array]:
        if resets is None and type(x) is np.ndarray and x.dtype == np.float32:
            quick = self._quick.get(x.shape)
            if quick is not None:
                self._quick_rows += x.shape[1]
                return quick(x)
        inputs, rows, marks = self._check(x, resets)
        marks = None if marks is None or not marks.any() else marks.astype(np.float32)
        arrays = [inputs[name] for name in self._inputs]
        outputs = self._windows(rows, arrays, marks)
        self._rows += rows
        if marks is not None:
            self._count_quick()
            since = np.argmax(marks[:, ::-1], axis=1) + 1  # rows since the last reset
            self._rows = np.where(marks.any(1), since, self._rows)
        return outputs_by_port(self.network, x, dict(zip(self._outputs, outputs, strict=True)))

    def _count_quick(self) -> None:
        """Add the rows that went directly to their program."""
        self._rows += self._quick_rows
        self._quick_rows = 0

    def _windows(self, rows: int, arrays: list[Array], marks: Array | None) -> list[Array]:
        """Run rows in as many programs as necessary."""
        if 0 < rows <= self._longest and rows.bit_count() == 1:
            try:
                return self._window(rows, arrays, marks)
            except _TooLongError as error:
                self._longest = error.rows
        windows: list[list[Array]] = []
        at = 0
        while at < rows:
            many = min(1 << (rows - at).bit_length() - 1, self._longest)
            window = slice(at, at + many)
            windows.append(
                self._windows(many, [a[:, window] for a in arrays], None if marks is None else marks[:, window])
            )
            at += many
        return [np.concatenate([none, *ys], 1) for none, *ys in zip(self._nothing, *windows, strict=True)]

    def _window(self, rows: int, arrays: list[Array], marks: Array | None) -> list[Array]:
        """Run a row count that has a program."""
        marks = None if marks is None or not marks.any() else marks
        resets = marks is not None
        program = self._programs.get((rows, resets), lambda: self._compile(rows, resets=resets))
        return program.run(arrays if marks is None else [*arrays, marks])

    def _compile(self, rows: int, *, resets: bool) -> Any:
        parted = self._graphs.parted
        graph = graph_of(self.network, rows, sequences=self.batch, resets=resets, resumes=True, parted=parted)
        fits = _fitting_window(graph)
        if fits < rows:
            raise _TooLongError(fits)
        split = split_constants(graph, self._weights)
        if split.first is not None and not set(self._store.keys()).issuperset(split.keys):
            for key, value in zip(split.keys, constant_values(split, self._graphs, self._store), strict=True):
                self._store.write(key, value)
        program = self._graphs.compile(split.rest, self._store)
        prepared = getattr(program, "prepare_call", None)  # of programs that run in the calling thread
        quick = None if resets or prepared is None else prepared()
        if quick is not None:
            self._quick[split.rest.tensors[split.rest.inputs[0]].shape] = quick
        return program

    def reset(self, streams: Iterable[int] | None = None) -> None:
        chosen = check_streams(streams, self.batch)
        self._count_quick()
        self._rows[chosen] = 0
        self._buffers.reset(chosen)

    def fork(self) -> ResidentStream:
        self._count_quick()
        stream = copy(self)
        stream._rows, stream._programs, stream._quick = self._rows.copy(), ProgramCache(), {}
        stream._node_masks = self._node_masks.fork()
        stream._store = self._store.share(set(self._store.keys()) - {*self._specs, *stream._node_masks.values})
        stream._buffers = self._buffers.copy_to(stream._store, together=True)
        stream._apply_masks()
        return stream

    def tap(self, outputs: Mapping[str, Coord], network: Network | None = None) -> ResidentStream:
        stream = self.fork()
        stream.network = with_outputs(network or self.network, outputs)
        stream._name_ends()
        return stream

    def _open_with(self, network: Network, params: Params) -> RowStream:
        if self._device is not None and not stays_resident(network, params):
            return RowStream(self._device, network, params, batch=self.batch)
        return ResidentStream(self._graphs, network, params, batch=self.batch, device=self._device)

    def strength(self, key: str) -> Array:
        """Return the same as other streams; only the means are copied back, not the state."""
        program = self._programs.get(("strength", key), lambda: self._reducing(key))
        with np.errstate(invalid="ignore"):
            return np.sqrt(program.run([])[0][..., 0].astype(np.float64))

    def _reducing(self, key: str) -> Any:
        """Compile the mean of squares over the last axis of a state."""
        work, shape = GraphBuilder(), (self.batch, *self._specs[key].shape)
        x = work.stored_tensor(key, shape)
        mean = work.reduce(work.binary("mul", x, x), "mean", (len(shape) - 1,))
        return self._graphs.compile(work.finish([mean]), self._store)

    def save(self) -> bytes:
        self._count_quick()
        values = self._buffers.values()
        of = [SavedValues({k: v[b] for k, v in values.items()}, int(self._rows[b])) for b in range(self.batch)]
        return self._pack([save_state(saved, self._specs) for saved in of])

    def restore(self, data: bytes) -> None:
        streams = []
        parts, living = self._unpack(data)
        for part in parts:
            streams.append(SavedValues({}, 0))
            restore_state(streams[-1], part, self._specs, sys.maxsize)
        values = self._buffers.initial_values()  # for streams without rows
        for b, saved in enumerate(streams):
            for key, value in saved.values.items():
                values[key][b] = as_numbers(value, np.dtype(np.float32)).reshape(self._specs[key].shape)
        self._buffers.write(values)
        self._node_masks.values = living
        self._apply_masks()
        self._quick_rows = 0
        self._rows = np.array([saved.position for saved in streams], np.int64)

    def _apply_masks(self) -> None:
        for key, value in self._node_masks.values.items():
            self._store.write(key, value)

    def close(self) -> None:
        self._quick.clear()
        self._programs.clear()
        close = getattr(self._store, "close", None)
        if close is not None:
            close()


class _TooLongError(Exception):
    """A program for this row count would have too many nodes."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def _fitting_window(graph: Graph) -> int:
    """Return the most rows of a program, a power of two, from the cost of a row of its longest loop."""
    each = max((len(node.attrs["body"].nodes) for node in graph.nodes if node.op == "scan"), default=0)
    return min(LONGEST, 1 << max(MOST_NODES // max(each, 1), 1).bit_length() - 1)
