"""Streams of rows through a network: calls of an executable that continue from the states of each stream."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.network import INPUT, Network, Params, check_params
from volumetric.network.grid import Coord
from volumetric.run.checked_blob import BlobFormat
from volumetric.run.device import Device, RunOptions, SequenceRows
from volumetric.run.kv_value import as_numbers
from volumetric.run.lower import is_endless, lower
from volumetric.run.streams.node_masks import HasNodeMasks, MaskedExecutable, NodeMasks
from volumetric.run.streams.stream_chunks import StreamChunk, in_chunks
from volumetric.run.streams.stream_io import check_marks, check_rows, check_streams, outputs_by_port
from volumetric.run.streams.stream_page import HasPage

SEAL = BlobFormat(magic=b"VOLSTRMS", version=1, what="a saved stream")


TOGETHER = 64
"""Parts between resets that may share a call, or the batch if it is larger; also the number of cached spare states."""


class _RowRun(NamedTuple):
    """Rows of a stream up to its next reset, and whether it is reset before the first of them."""

    stream: int
    start: int
    stop: int
    anew: bool


class StreamHeader(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Number of bytes of each stream, and masked nodes of fabrics by the key of the mask."""

    lengths: list[int]
    masked: dict[str, list[int]] = {}


class RowStream(HasNodeMasks, HasPage):
    """Parallel streams on a device. Their states stay on the device between calls.

    Parameters
    ----------
    device : the device to run on
    network : without layers that read later rows; keys and values of attention grow up to the options' context
    batch : number of streams
    """

    def __init__(
        self, device: Device, network: Network, params: Params, *, batch: int = 1, options: RunOptions | None = None
    ) -> None:
        if batch < 1:
            raise SpecError(f"a stream needs a batch of 1 or more, got {batch}")
        check_params(network, params)
        self.network: Network = network
        self.batch: int = batch
        plan = lower(network)
        if options is None and is_endless(plan):
            options = RunOptions(context=sys.maxsize)
        self._opened = device, params, options
        self._params = params
        self._executable = device.compile(plan, params, options)
        self._node_masks = NodeMasks(network, params)
        self._masked_executable = MaskedExecutable(self._executable, self._node_masks, plan.params)
        self._states: list[Any] = [self._executable.new_state() for _ in range(batch)]
        self._spare: list[Any] = []

    def run(self, x: Array | Mapping[str, Array], *, resets: Array | None = None) -> Array | dict[str, Array]:
        """Append rows to all streams.

        Parameters
        ----------
        x : ``[batch, T, …]``, or a mapping by input; for the network of a fabric also by the fabric's inputs
        resets : ``[batch, T]``, 1 for a row that starts a new sequence

        Returns
        -------
        float32 ``[batch, T, …]``; a mapping by name if the network has several outputs, or if rows were passed by a
        fabric's inputs

        Raises
        ------
        ShapeError : rows or resets do not match the network's inputs; nothing has changed
        """
        inputs, rows, marks = self._check(x, resets)
        taps = self.network.taps
        outputs = {n: np.zeros((self.batch, rows, *self.network.shapes[c][1:]), np.float32) for n, c in taps.items()}
        parts = [part for b in range(self.batch) for part in _parts(b, rows, None if marks is None else marks[b])]
        together = max(self.batch, TOGETHER)
        for now in (parts[at : at + together] for at in range(0, len(parts), together)):
            states = [self._spare_state() if part.anew else self._states[part.stream] for part in now]
            pieces = [
                self._sequence_rows(
                    state, {n: value[part.stream, part.start : part.stop] for n, value in inputs.items()}
                )
                for state, part in zip(states, now, strict=True)
            ]
            with self._masked_executable.updated(self._node_masks) as executable:
                results = executable.run(pieces)
            for part, state, result in zip(now, states, results, strict=True):
                by_name = result if isinstance(result, Mapping) else {next(iter(taps)): result}
                for name, y in by_name.items():
                    outputs[name][part.stream, part.start : part.stop] = y
                if part.anew:
                    self._states[part.stream].reset()
                    self._spare.append(self._states[part.stream])
                    self._states[part.stream] = state
            del self._spare[TOGETHER:]
        return outputs_by_port(self.network, x, outputs)

    def _check(
        self, x: Array | Mapping[str, Array], resets: Array | None
    ) -> tuple[dict[str, Array], int, Array | None]:
        """Return rows by input, their number, and the resets."""
        inputs, rows = check_rows(self.network, x, self.batch)
        missing = [name for name in self.network.ports if name not in inputs]
        if missing:
            raise ShapeError(f"input {missing[0]!r} has no rows", hint="pass rows for every input")
        return inputs, rows, None if resets is None else check_marks(resets, self.batch, rows)

    def iterate(
        self,
        rows: Iterable[Array | Mapping[str, Array]],
        *,
        resets: Iterable[Array] | None = None,
        chunk: int = 64,
    ) -> Iterator[Array | dict[str, Array]]:
        """Run rows as they arrive, in chunks and the rest at the end, with constant memory.

        Parameters
        ----------
        rows : each ``[batch, …]``, or a mapping of these by input
        resets : for each row ``[batch]``, 1 for a stream that is reset before it
        chunk : rows of a call

        Yields
        ------
        The result of `run` for each chunk
        """
        return map(self.advance, in_chunks(rows, resets, chunk=chunk))

    def advance(self, chunk: StreamChunk) -> Array | dict[str, Array]:
        """Run one chunk of rows."""
        return self.run(chunk.x, resets=chunk.resets)

    def _spare_state(self) -> Any:
        """Return the initial state of a stream."""
        return self._spare.pop() if self._spare else self._executable.new_state()

    def _sequence_rows(self, state: Any, rows: dict[str, Array]) -> SequenceRows:
        return SequenceRows(state, rows[INPUT] if len(self.network.ports) == 1 else rows, "all")

    def reset(self, streams: Iterable[int] | None = None) -> None:
        """Reset all streams, or the selected ones."""
        for b in check_streams(streams, self.batch):
            self._states[b].reset()

    def fork(self) -> RowStream:
        """Return an independent copy with the same weights."""
        stream = copy(self)
        stream._node_masks, stream._spare = self._node_masks.fork(), []
        stream._states = [state.fork() for state in self._states]
        return stream

    def tap(self, outputs: Mapping[str, Coord], network: Network | None = None) -> RowStream:
        """Return independent streams that continue from here, of the same network with additional outputs.

        Parameters
        ----------
        network : a network to use instead, with the same parameters and states, such as an observed program
        """
        device, params, options = self._opened
        network = with_outputs(network or self.network, outputs)
        streams = RowStream(device, network, params, batch=self.batch, options=options)
        streams.restore(self.save())
        return streams

    def migrate(self, network: Network, params: Params, *, rewired: bool = False) -> RowStream:
        """Return independent streams that continue from here, of a network whose fabrics have more or fewer nodes.

        States and masks follow node ids; new nodes start with initial states.

        Parameters
        ----------
        rewired : links, edges, clocks and layers may differ, too. A state with the same key and shape in both networks
            continues, others start anew

        Raises
        ------
        SpecError : the states of the two networks differ in something other than nodes; or, if `rewired`, the other
            network has rows that these streams have not
        """
        from volumetric.run.streams.migration import migrate_streams

        parts = migrate_streams(self._unpack(self.save())[0], self.network, network, rewired=rewired)
        streams = self._open_with(network, params)
        streams.restore(
            SEAL.pack(
                StreamHeader(lengths=list(map(len, parts)), masked=streams._node_masks.masks_after(self._node_masks)),
                parts,
            )
        )
        return streams

    def state(self) -> dict[str, Array]:
        """Return a copy of all states of fixed size, ``[batch, …]`` by key; none of streams without rows."""
        values: dict[str, Array] = {}

        def read(key: str, value: Array) -> Array:
            values[key] = value.copy()
            return value

        self._changed_parts(read)
        return values

    def change_states(self, change: Callable[[str, Array], Array]) -> None:
        """Replace the states of fixed size of all streams that have run rows.

        Parameters
        ----------
        change : takes the key and the values ``[streams, …]`` of a state, and returns the new values
        """
        parts = self._changed_parts(change)
        self.restore(
            SEAL.pack(StreamHeader(lengths=list(map(len, parts)), masked=self._node_masks.masked_ids()), parts)
        )

    def _changed_parts(self, change: Callable[[str, Array], Array]) -> list[bytes]:
        from volumetric.run.streams.migration import change_streams

        return change_streams(self._unpack(self.save())[0], self.network, change)

    @property
    def params(self) -> Params:
        """Weights of the network."""
        return self._params

    def _open_with(self, network: Network, params: Params) -> RowStream:
        """Return new streams of another network on the same device."""
        device, _, options = self._opened
        return RowStream(device, network, params, batch=self.batch, options=options)

    def strength(self, key: str) -> Array:
        """Return the root mean square over the last axis of a state of fixed size, float64 ``[batch, …]``.

        Parameters
        ----------
        key : key of the state, such as ``"0.0.0.0/shown"``
        """
        values = np.stack([as_numbers(state.read(key), np.dtype(np.float64)) for state in self._states])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sqrt(np.square(values).mean(-1))

    def save(self) -> bytes:
        """Return the states of all streams as bytes for `restore`, on any device with these weights."""
        return self._pack([state.save() for state in self._states])

    def _pack(self, parts: list[bytes]) -> bytes:
        return SEAL.pack(StreamHeader(lengths=list(map(len, parts)), masked=self._node_masks.masked_ids()), parts)

    def restore(self, data: bytes) -> None:
        """Restore the states of streams that were saved as `data`.

        Raises
        ------
        CheckpointError : the bytes are damaged, or of another network or batch; nothing has changed
        """
        parts, living = self._unpack(data)
        self._states = [self._executable.restore(part) for part in parts]
        self._node_masks.values = living

    def _unpack(self, data: bytes) -> tuple[list[bytes], Mapping[str, Array]]:
        """Split saved bytes into those of each stream, and the masks of fabrics."""
        header, body = SEAL.unpack(data, StreamHeader)
        if len(header.lengths) != self.batch:
            raise CheckpointError(
                f"the saved stream has a batch of {len(header.lengths)}, expected {self.batch}",
                hint="open the stream with the batch that it was saved with",
            )
        if min(header.lengths) < 0 or sum(header.lengths) != len(body):
            raise SEAL.damaged_error("the lengths in its header do not match its size")
        living = self._node_masks.restore(header.masked)
        ends = np.cumsum(header.lengths).tolist()
        return [bytes(body[end - size : end]) for end, size in zip(ends, header.lengths, strict=True)], living

    def close(self) -> None:
        """Free the device's memory."""
        self._executable.close()


def with_outputs(network: Network, outputs: Mapping[str, Coord]) -> Network:
    """Return a network with additional outputs."""
    return replace(network, outputs={**network.outputs, **outputs}) if outputs else network


def _parts(stream: int, rows: int, marks: Array | None) -> list[_RowRun]:
    """Split the rows of a stream at its resets."""
    if not rows:
        return []
    cuts = [0] if marks is None else sorted({0, *np.flatnonzero(marks).tolist()})
    ends = zip(cuts, [*cuts[1:], rows], strict=True)
    return [_RowRun(stream, start, stop, marks is not None and bool(marks[start])) for start, stop in ends]
