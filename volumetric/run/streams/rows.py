"""Streams of rows through a network: calls of an executable, each from where its sequence was."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.network import INPUT, Network, Params, check_params
from volumetric.network.grid import Coord
from volumetric.run.device import Device, Piece, RunOptions
from volumetric.run.held import as_numbers
from volumetric.run.lower import endless, lower
from volumetric.run.sealed import Seal
from volumetric.run.streams.chunks import Chunk, in_chunks
from volumetric.run.streams.living import HasLiving, Living, Told
from volumetric.run.streams.marks import check_marks, check_rows, check_streams, parted

SEAL = Seal(magic=b"VOLSTRMS", version=1, what="a saved stream")


TOGETHER = 64
"""Parts between resets that share a call, at least; so many states are kept for the next ones."""


class _Part(NamedTuple):
    """Rows of a stream, up to where it begins anew; and whether it does so with the first of them."""

    stream: int
    start: int
    stop: int
    anew: bool


class Header(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Bytes of each stream, and nodes of fabrics that are masked, by the key of what says so."""

    lengths: list[int]
    masked: dict[str, list[int]] = {}


class RowStream(HasLiving):
    """Streams side by side on a device. What layers keep of them stays there from call to call.

    Parameters
    ----------
    device : where to compute
    network : without layers that look at later rows; keys and values of attention grow up to the options' context
    batch : streams
    """

    def __init__(
        self, device: Device, network: Network, params: Params, *, batch: int = 1, options: RunOptions | None = None
    ) -> None:
        if batch < 1:
            raise SpecError(f"a stream needs a batch of 1 or more, got {batch}")
        check_params(network, params)
        self.network, self.batch = network, batch
        plan = lower(network)
        if options is None and endless(plan):
            options = RunOptions(context=sys.maxsize)
        self._opened = device, params, options
        self._executable = device.compile(plan, params, options)
        self._living = Living(network, params)
        self._told = Told(self._executable, self._living, plan.params)
        self._states: list[Any] = [self._executable.new_state() for _ in range(batch)]
        self._spare: list[Any] = []

    def run(self, x: Array | Mapping[str, Array], *, resets: Array | None = None) -> Array | dict[str, Array]:
        """Append rows to all streams.

        Parameters
        ----------
        x : ``[batch, T, …]``, or by input; of a network of a fabric also by the fabric's inputs
        resets : ``[batch, T]``, 1 where a stream begins anew with a row: as if nothing had been before

        Returns
        -------
        float32 ``[batch, T, …]``; by name where the network has several outputs, or where rows were given by
        a fabric's inputs

        Raises
        ------
        ShapeError : rows or resets are not what the network reads; nothing has changed
        """
        inputs, rows, marks = self._check(x, resets)
        taps = self.network.taps
        outputs = {n: np.zeros((self.batch, rows, *self.network.shapes[c][1:]), np.float32) for n, c in taps.items()}
        parts = [part for b in range(self.batch) for part in _parts(b, rows, None if marks is None else marks[b])]
        together = max(self.batch, TOGETHER)
        for now in (parts[at : at + together] for at in range(0, len(parts), together)):
            states = [self._fresh() if part.anew else self._states[part.stream] for part in now]
            pieces = [
                self._piece(state, {n: value[part.stream, part.start : part.stop] for n, value in inputs.items()})
                for state, part in zip(states, now, strict=True)
            ]
            with self._told.turn(self._living) as executable:
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
        return parted(self.network, x, outputs)

    def _check(
        self, x: Array | Mapping[str, Array], resets: Array | None
    ) -> tuple[dict[str, Array], int, Array | None]:
        """Return rows by input, how many there are, and where streams begin anew."""
        inputs, rows = check_rows(self.network, x, self.batch)
        missing = [name for name in self.network.ports if name not in inputs]
        if missing:
            raise ShapeError(f"input {missing[0]!r} has no rows", hint="give rows for every input")
        return inputs, rows, None if resets is None else check_marks(resets, self.batch, rows)

    def iterate(
        self,
        rows: Iterable[Array | Mapping[str, Array]],
        *,
        resets: Iterable[Array] | None = None,
        chunk: int = 64,
    ) -> Iterator[Array | dict[str, Array]]:
        """Run rows as they come, a chunk at a time and the rest at the end, in memory that does not grow.

        Parameters
        ----------
        rows : each ``[batch, …]``, or such by input
        resets : for each row ``[batch]``, 1 where a stream begins anew with it
        chunk : rows of a call

        Yields
        ------
        What `run` returns of each chunk
        """
        return map(self.advance, in_chunks(rows, resets, chunk=chunk))

    def advance(self, chunk: Chunk) -> Array | dict[str, Array]:
        """Run one chunk of rows."""
        return self.run(chunk.x, resets=chunk.resets)

    def _fresh(self) -> Any:
        """Return a state of a stream that begins."""
        return self._spare.pop() if self._spare else self._executable.new_state()

    def _piece(self, state: Any, rows: dict[str, Array]) -> Piece:
        return Piece(state, rows[INPUT] if len(self.network.ports) == 1 else rows, "all")

    def reset(self, streams: Iterable[int] | None = None) -> None:
        """Let all streams, or those that are named, begin anew."""
        for b in check_streams(streams, self.batch):
            self._states[b].reset()

    def fork(self) -> RowStream:
        """Return a copy: both go on independently, with the same weights."""
        stream = copy(self)
        stream._living, stream._spare = self._living.fork(), []
        stream._states = [state.fork() for state in self._states]
        return stream

    def tapped(self, outputs: Mapping[str, Coord], network: Network | None = None) -> RowStream:
        """Return streams that go on from here on their own, of the same network with further outputs.

        Parameters
        ----------
        network : in its place one with the same parameters and states, as a program that is watched
        """
        device, params, options = self._opened
        network = with_outputs(network or self.network, outputs)
        streams = RowStream(device, network, params, batch=self.batch, options=options)
        streams.restore(self.save())
        return streams

    def onto(self, network: Network, params: Params) -> RowStream:
        """Return streams that go on from here on their own, of a network whose fabrics have more nodes, or fewer.

        What nodes keep follows them by their ids, and so does whether they are masked; new ones begin.

        Raises
        ------
        SpecError : something else is different of what streams of the two networks keep
        """
        from volumetric.run.streams.moved import moved

        parts = moved(self._apart(self.save())[0], self.network, network)
        streams = self._opened_with(network, params)
        streams.restore(
            SEAL.close(Header(lengths=list(map(len, parts)), masked=streams._living.after(self._living)), parts)
        )
        return streams

    def _opened_with(self, network: Network, params: Params) -> RowStream:
        """Return fresh streams of another network in the same place."""
        device, _, options = self._opened
        return RowStream(device, network, params, batch=self.batch, options=options)

    def strength(self, key: str) -> Array:
        """Return the root mean square over the last axis of a state of fixed size, float64 ``[batch, …]``.

        Parameters
        ----------
        key : of the state, as ``"0.0.0.0/shown"``
        """
        values = np.stack([as_numbers(state.read(key), np.dtype(np.float64)) for state in self._states])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sqrt(np.square(values).mean(-1))

    def save(self) -> bytes:
        """Return what is kept of all streams as bytes that `restore` takes, on any device with these weights."""
        return self._together([state.save() for state in self._states])

    def _together(self, parts: list[bytes]) -> bytes:
        return SEAL.close(Header(lengths=list(map(len, parts)), masked=self._living.saved()), parts)

    def restore(self, data: bytes) -> None:
        """Go on where the streams went that `data` was saved of.

        Raises
        ------
        CheckpointError : the bytes are damaged, or of another network or batch; nothing has changed
        """
        parts, living = self._apart(data)
        self._states = [self._executable.restore(part) for part in parts]
        self._living.values = living

    def _apart(self, data: bytes) -> tuple[list[bytes], Mapping[str, Array]]:
        """Return what each stream saved, and which nodes of fabrics lived."""
        header, body = SEAL.open(data, Header)
        if len(header.lengths) != self.batch:
            raise CheckpointError(
                f"the saved stream has a batch of {len(header.lengths)}, this one of {self.batch}",
                hint="open the stream with the batch that it was saved with",
            )
        if min(header.lengths) < 0 or sum(header.lengths) != len(body):
            raise SEAL.damaged("its parts do not have the lengths that it announces")
        living = self._living.restored(header.masked)
        ends = np.cumsum(header.lengths).tolist()
        return [bytes(body[end - size : end]) for end, size in zip(ends, header.lengths, strict=True)], living

    def close(self) -> None:
        """Give the device's memory back."""
        self._executable.close()


def with_outputs(network: Network, outputs: Mapping[str, Coord]) -> Network:
    """Return a network with further outputs."""
    return replace(network, outputs={**network.outputs, **outputs}) if outputs else network


def _parts(stream: int, rows: int, marks: Array | None) -> list[_Part]:
    """Cut rows where a stream begins anew."""
    if not rows:
        return []
    cuts = [0] if marks is None else sorted({0, *np.flatnonzero(marks).tolist()})
    ends = zip(cuts, [*cuts[1:], rows], strict=True)
    return [_Part(stream, start, stop, marks is not None and bool(marks[start])) for start, stop in ends]
