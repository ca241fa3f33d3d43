"""Streams: a batch of unbounded sequences through a clocked network."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import SpecError
from volumetric.clocked.machine import Clocked
from volumetric.clocked.states import wait_key
from volumetric.clocked.window import Machine
from volumetric.clocked.window_program import window_graph
from volumetric.graph.graph_device import HasGraphs
from volumetric.graph.parameter_stacks import ParameterStack
from volumetric.graph.program_cache import ProgramCache
from volumetric.layers import StateSpec
from volumetric.layers.clock_steps import counters
from volumetric.network import Params, check_params
from volumetric.run.kv_value import KvValue
from volumetric.run.state_file import SavedValues, restore_state, save_state
from volumetric.run.stream_buffers import StreamBuffers
from volumetric.run.streams.node_masks import HasNodeMasks, NodeMasks
from volumetric.run.streams.row_stream import SEAL, StreamHeader
from volumetric.run.streams.stream_chunks import StreamChunk, in_chunks
from volumetric.run.streams.stream_io import check_marks, check_rows, check_streams, outputs_by_port
from volumetric.run.streams.stream_page import HasPage

LONGEST = 64
"""Maximum ticks of one program; longer runs use several programs, of powers of two."""


class ClockedStream(HasNodeMasks, HasPage):
    """Streams of a clocked network on a device. Their states stay on the device from call to call.

    Parameters
    ----------
    device : device to compute on
    clocked : clocked network
    params : weights of the network
    batch : number of streams

    Raises
    ------
    CheckpointError : `params` do not match the network
    """

    def __init__(self, device: HasGraphs, clocked: Clocked, params: Params, *, batch: int = 1) -> None:
        if batch < 1:
            raise SpecError(f"a stream needs a batch of 1 or more, got {batch}")
        check_params(clocked.network, params)
        self.clocked: Clocked = clocked
        self.batch: int = batch
        self.position: int = 0
        self._device = device
        self._params = params
        self._machine = Machine(clocked, batch)
        self._graphs = device.graphs()
        self._store: Any = self._graphs.store()
        self._programs = ProgramCache()
        self._put_weights(params)
        self._node_masks = NodeMasks(clocked.network, params)
        self._weights = tuple(sorted(set(self._store.keys()) - set(self._node_masks.values)))
        self._buffers = StreamBuffers(self._store, self._machine.buffers, batch)
        self._buffers.begin()

    def run(
        self,
        x: Array | Mapping[str, Array] | None = None,
        *,
        ticks: int | None = None,
        per_row: int = 1,
        resets: Array | None = None,
    ) -> Array | dict[str, Array]:
        """Run `per_row` ticks for each row of `x`, or `ticks` ticks on the values that the inputs hold.

        Parameters
        ----------
        x : ``[batch, T, …]``, or a dict by input name; inputs that are left out keep their values
        ticks : number of ticks without rows, or with one row per stream, which is then held
        per_row : ticks for each row
        resets : ``[batch, T]`` (or ``[batch, ticks]`` without rows): 1 resets a stream before that row

        Returns
        -------
        float32 ``[batch, ticks, …]``, read after each tick; a dict by name if the network has several outputs

        Raises
        ------
        ShapeError : rows or resets do not match the network's inputs; no state has changed
        """
        inputs, rows = check_rows(self.clocked.network, x, self.batch)
        if ticks is not None and (rows > 1 or ticks < rows or per_row != 1):
            raise SpecError(f"ticks needs one row per stream, or no rows, got {ticks} ticks and {rows} rows")
        if per_row < 1:
            raise SpecError(f"per_row must be 1 tick or more, got {per_row}")
        if ticks is not None and rows:
            marks = None if resets is None else check_marks(resets, self.batch, 1)
            return _concat_ticks(self.run(x, resets=marks), self.run(ticks=ticks - 1))
        rows = rows if ticks is None else ticks
        marks = None if resets is None else self._marks(check_marks(resets, self.batch, rows), per_row)
        inputs = {name: np.ascontiguousarray(value.swapaxes(0, 1)) for name, value in inputs.items()}
        shapes, taps = self.clocked.network.shapes, self.clocked.network.taps
        windows = [[np.zeros((0, self.batch, *shapes[coord][1:]), np.float32) for coord in taps.values()]]
        windows += [
            self._window(inputs, start, count, per_row, marks) for start, count in self._window_spans(rows, per_row)
        ]
        self.position += rows * per_row
        outputs = {n: np.concatenate([ys[i] for ys in windows]).swapaxes(0, 1) for i, n in enumerate(taps)}
        return outputs_by_port(self.clocked.network, x, outputs)

    def iterate(
        self,
        rows: Iterable[Array | Mapping[str, Array]],
        *,
        resets: Iterable[Array] | None = None,
        chunk: int = 64,
        per_row: int = 1,
    ) -> Iterator[Array | dict[str, Array]]:
        """Run an iterable of rows, in chunks; memory does not grow with the number of rows.

        Parameters
        ----------
        rows : each ``[batch, …]``, or a dict by input name; ``{}``: ticks on the values that the inputs hold
        resets : for each row ``[batch]``, 1 resets a stream before that row
        chunk : rows per call
        per_row : ticks for each row

        Yields
        ------
        The result of `run` for each chunk
        """
        return (self.advance(part, per_row=per_row) for part in in_chunks(rows, resets, chunk=chunk))

    def advance(self, chunk: StreamChunk, *, per_row: int = 1) -> Array | dict[str, Array]:
        """Run one chunk of rows; rows without any input are ticks on the values that the inputs hold."""
        if chunk.x:
            return self.run(chunk.x, per_row=per_row, resets=chunk.resets)
        if per_row < 1:
            raise SpecError(f"per_row must be 1 tick or more, got {per_row}")
        resets = None
        if chunk.resets is not None:
            marks = check_marks(chunk.resets, self.batch, chunk.count)
            resets = self._marks(marks, per_row).T
        return self.run(ticks=chunk.count * per_row, resets=resets)

    def reset(self, streams: Iterable[int] | None = None) -> None:
        """Reset all streams, or the streams passed."""
        self._buffers.reset(check_streams(streams, self.batch))

    def _marks(self, resets: Array, per_row: int) -> Array:
        """Return the resets of ticks, ``[ticks, batch]``: only the first tick of a row can reset."""
        marks = np.zeros((resets.shape[1] * per_row, self.batch), np.float32)
        marks[::per_row] = resets.T
        return marks

    def _put_weights(self, params: Params) -> None:
        network = self.clocked.network
        for bucket in self._machine.buckets:
            if bucket.identity:
                continue
            for p in bucket.spec.tensors():
                keys = [network.resolve(f"{coord}/{p.name}") for coord in bucket.coords]
                if bucket.way == "grouped":
                    stack = ParameterStack(tuple(keys), p.shape)
                    self._store.write(stack.key, stack.join(lambda key: params[key].values()))
                    continue
                for key in set(keys) - set(self._store.keys()):
                    self._store.write(key, params[key].values())

    @staticmethod
    def _window_spans(rows: int, per_row: int) -> Iterator[tuple[int, int]]:
        """Split rows into powers of two, so that few programs serve all lengths."""
        start, most = 0, max(1, LONGEST // per_row)
        while start < rows:
            count = min(1 << ((rows - start).bit_length() - 1), 1 << (most.bit_length() - 1))
            yield start, count
            start += count

    def _window(
        self, inputs: Mapping[str, Array], start: int, rows: int, per_row: int, marks: Array | None
    ) -> list[Array]:
        part = None if marks is None else marks[start * per_row : (start + rows) * per_row]
        if part is not None and not part.any():
            part = None
        program = self._program(rows, per_row, tuple(inputs), resets=part is not None)
        arrays = [value[start : start + rows] for value in inputs.values()]
        return program.run(arrays if part is None else [*arrays, part])

    def _program(self, rows: int, per_row: int, fed_inputs: tuple[str, ...], *, resets: bool) -> Any:
        key: Hashable = (rows, per_row, fed_inputs, resets)
        return self._programs.get(
            key,
            lambda: self._graphs.compile(
                window_graph(self._machine, rows, per_row, fed_inputs, resets=resets), self._store
            ),
        )

    def tick_program(self, fed_inputs: Sequence[str]) -> Any:
        """Return the device's program of one tick at which rows of these inputs arrive, in this order.

        Outputs are those of the network, ``[1, batch, …]``.
        """
        return self._program(1, 1, tuple(fed_inputs), resets=False)

    def state_buffers(self) -> dict[str, Any]:
        """Return the device's buffers of all states by name."""
        return {key: self._store.buffer(place) for key, place in self._buffers.places.items()}

    def state(self) -> dict[str, Array]:
        """Return a copy of all states, ``[batch, …]`` by the keys of `stream_states`."""
        return self._machine.gather(self._buffers.get)

    def activity(self, row: int | None = None) -> F32Array:
        """Return the root mean square of each layer's output, over its features, float32 ``[layers]``.

        Layers are in reading order. The device is read once per bucket, not once per layer.

        Parameters
        ----------
        row : index of a stream; None: over all streams
        """
        strengths = dict.fromkeys(self.clocked.network.layers, 0.0)
        some = slice(None) if row is None else slice(row, row + 1)
        for i, bucket in enumerate(self._machine.buckets):
            plane = self._buffers.get(f"plane/{i}/1").reshape(bucket.size, self.batch, -1)[:, some].astype(np.float64)
            strengths.update(zip(bucket.coords, np.sqrt(np.square(plane).mean((1, 2))).tolist(), strict=True))
        return np.array(list(strengths.values()), np.float32)

    def read(self, key: str) -> Array:
        """Return a copy of one state."""
        name, row = self._machine.locate(key)
        return self._buffers.get(name)[row or 0].copy()

    def strength(self, key: str) -> Array:
        """Return the root mean square of a state over its last axis, float64 ``[batch, …]``."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sqrt(np.square(self.read(key), dtype=np.float64).mean(-1))

    def fill(self, values: Mapping[str, KvValue], position: int) -> None:
        """Replace all states by ``[batch, …]`` arrays by key, taken after `position` ticks."""
        self._buffers.write(self._machine.scatter(values))
        self.position = position

    def change_states(self, change: Callable[[str, Array], Array]) -> None:
        """Replace all states.

        Parameters
        ----------
        change : takes the key and the values ``[batch, …]`` of a state, and returns the new values
        """
        self.fill({key: change(key, value) for key, value in self.state().items()}, self.position)

    @property
    def params(self) -> Params:
        """Weights of the network."""
        return self._params

    def migrate(self, clocked: Clocked, params: Params, *, rewired: bool = False) -> ClockedStream:
        """Return independent streams that continue from here on a machine whose fabrics have other nodes.

        States and masks of nodes follow the node ids; new nodes start fresh.

        Parameters
        ----------
        rewired : links, clocks and layers may differ, too. A state with the same key and shape in both machines
            continues, others start anew, and so do the counts of clocks that differ

        Raises
        ------
        SpecError : the states of the two machines differ in anything else
        """
        from volumetric.run.streams.migration import migrate_state, state_mappings

        stream = ClockedStream(self._device, clocked, params, batch=self.batch)
        old_states, new_states, before = self._machine.stream_states, stream._machine.stream_states, self.state()
        ways = state_mappings(self.clocked.network, clocked.network, old_states, new_states, rewired=rewired)
        changed = {coord for coord, clock in clocked.clocks.items() if clock != self.clocked.clocks.get(coord)}
        anew = {wait_key(coord, n) for coord in changed for n in range(len(counters(clocked.clocks[coord])))}
        values: dict[str, Array] = {}
        for key, spec in new_states.items():
            if key in ways:
                was = old_states[key].shape if key in old_states else spec.shape
                streams = before.get(key, np.zeros((self.batch, 0), np.float32))
                values[key] = np.stack([migrate_state(value, was, spec.shape, *ways[key]) for value in streams])
            elif old_states.get(key) == spec and not (rewired and key in anew):
                values[key] = before[key]
            else:
                values[key] = np.full((self.batch, *spec.shape), spec.start, spec.dtype)
        stream.fill(values, self.position)
        stream._node_masks.values = stream._node_masks.restore(stream._node_masks.masks_after(self._node_masks))
        stream._apply_masks()
        return stream

    def save(self) -> bytes:
        """Return the states of all streams as bytes for `restore`, on any device with these weights."""
        data = save_state(SavedValues(self.state(), self.position), self._specs)
        return (
            SEAL.pack(StreamHeader(lengths=[len(data)], masked=self._node_masks.masked_ids()), [data])
            if self._node_masks.values
            else data
        )

    def restore(self, data: bytes) -> None:
        """Continue from the states that `save` wrote to `data`.

        Raises
        ------
        CheckpointError : the bytes are damaged, or of another machine or batch; no state has changed
        """
        restored, living = SavedValues({}, 0), self._node_masks.values
        if living:
            header, body = SEAL.unpack(data, StreamHeader)
            living, data = self._node_masks.restore(header.masked), bytes(body)
        restore_state(restored, data, self._specs, sys.maxsize)
        self.fill(restored.values, restored.position)
        self._node_masks.values = living
        self._apply_masks()

    def fork(self) -> ClockedStream:
        """Return an independent copy of the streams that shares the weights on the device."""
        twin = copy(self)
        twin._store, twin._programs = self._store.share(self._weights), ProgramCache()
        twin._node_masks = self._node_masks.fork()
        twin._buffers = self._buffers.copy_to(twin._store)
        twin._apply_masks()
        return twin

    def _apply_masks(self) -> None:
        for key, value in self._node_masks.values.items():
            self._store.write(key, value)

    @property
    def _specs(self) -> dict[str, StateSpec]:
        """Return the states in the form that saved files declare."""
        return {
            key: replace(spec, shape=(self.batch, *spec.shape)) for key, spec in self._machine.stream_states.items()
        }


def _concat_ticks(first: Array | dict[str, Array], then: Array | dict[str, Array]) -> Array | dict[str, Array]:
    """Concatenate ticks."""
    if isinstance(first, dict) and isinstance(then, dict):
        return {name: np.concatenate([y, then[name]], 1) for name, y in first.items()}
    return np.concatenate([first, then], 1)  # pyright: ignore[reportArgumentType, reportCallIssue]  (both are arrays)
