"""Activity of layers while a stream runs: frames, by tick or by row, and recordings of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.clocked.layer_clocks import firing_layers, layers_fired
from volumetric.network import OUTPUT
from volumetric.observe.frame_blocks import ActivityFrame, FrameBlocks
from volumetric.observe.frame_pace import FramePace
from volumetric.observe.recording import Recording, RecordingMeta
from volumetric.observe.scene import Scene, parts_of, program_of, scene_of
from volumetric.run.streams import RowStream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.run.streams.stream_io import inputs_by_port, outputs_by_port

if TYPE_CHECKING:
    from volumetric.program.layer.program_layer import Program

MOST: Final = 32_000_000
"""Default limit on the values of a recording, nodes times frames."""
_TAP: Final = "layer."
AnyStream = ClockedStream | RowStream


@renamed_members(seen="tick_count")
class Recorder:
    """Runs a stream and records its layers after each tick, or row.

    The stream's numbers do not change. A clocked network runs one tick per call, which takes longer.

    Parameters
    ----------
    stream : stream to run; the state of a stream of rows changes only at `close`
    row : index of the stream to record; None: all streams together
    every : ticks or rows from one frame to the next
    most : maximum number of stored values, nodes times frames; later frames are only counted
    edges : maximum number of edges in the scene
    tell : callback for each frame
    rate : maximum number of calls of `tell` a second; None: each frame. Once no more frames are stored, the stream runs
        in calls as large as that allows, and `tell` gets the last tick or row of a call

    Raises
    ------
    SpecError : `row` is out of range, `every` is below 1, or `rate` is not above 0
    """

    def __init__(
        self,
        stream: AnyStream,
        *,
        row: int | None = 0,
        every: int = 1,
        most: int = MOST,
        edges: int = 4000,
        tell: Callable[[ActivityFrame], None] | None = None,
        rate: float | None = None,
    ) -> None:
        if row is not None and not 0 <= row < stream.batch:
            raise SpecError(f"row must be in 0 … {stream.batch - 1}, got {row}", hint="None records all streams")
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}")
        machine = stream.clocked if isinstance(stream, ClockedStream) else stream.network
        self._network = machine.network if isinstance(machine, Clocked) else machine
        self._parts = parts_of(self._network)
        self._held: dict[str, Array] = {}  # clocked networks: strength of the last row of each input
        self.scene: Scene = scene_of(machine, edges=edges)
        self.tick_count: int = 0
        self._stored = FrameBlocks(self.scene)
        self._stream, self._row, self._every = stream, row, every
        self.tell = tell
        self._room = max(1, most // len(self.scene.nodes)) if most else 0
        self._pace = None if rate is None else FramePace(rate)
        self._reset_stored = self._reset_told = False  # since the last frame that was stored, or told
        self._missed = 0
        self._tapped: RowStream | None = None
        self._program = program_of(self._network) if isinstance(stream, RowStream) else None
        if self._program is not None and isinstance(stream, RowStream):
            from volumetric.observe.firing import watched_network

            self._tapped = stream.tap({}, watched_network(stream.network))
        elif isinstance(stream, RowStream):
            layers = stream.network.layers
            self._tapped = stream.tap({f"{_TAP}{i}": coord for i, coord in enumerate(layers)})

    @property
    def frame_count(self) -> int:
        """Number of stored frames."""
        return len(self._stored)

    @property
    def frames(self) -> list[ActivityFrame]:
        """Stored frames; all but the last few hundred have values in 255 steps of the scale of their group."""
        return [*self._stored.frames()]

    def advance(self, chunk: StreamChunk, *, per_row: int = 1) -> Array | dict[str, Array]:
        """Run the stream's `advance` and record it; `per_row` is for clocked networks."""
        if isinstance(self._stream, ClockedStream):
            return self._ticks(self._stream, chunk, per_row)
        if per_row != 1:
            raise SpecError("per_row needs a network that runs tick by tick")
        return self._rows(chunk)

    def close(self) -> None:
        """Move the stream to the state of the recorder."""
        if self._tapped is not None and isinstance(self._stream, RowStream):
            self._tapped.live_as(self._stream)
            self._stream.restore(self._tapped.save())
            self._tapped.close()
            self._tapped = None

    @property
    def running_stream(self) -> AnyStream:
        """The stream that computes: a copy with more outputs of a stream of rows until `close`, else the stream."""
        return self._stream if self._tapped is None else self._tapped

    def _rows(self, chunk: StreamChunk) -> Array | dict[str, Array]:
        if self._tapped is None:
            raise SpecError("the recorder is closed")
        self._tapped.live_as(self._stream)  # masks of its nodes may have changed
        named_chunk = replace(chunk, x=inputs_by_port(self._network, chunk.x, self._tapped.batch))
        if self._program is not None:
            return self._program_rows(self._program, self._tapped, chunk, named_chunk)
        series: dict[str, list[Array]] = {}
        for at, stop, due in self._cuts(chunk.count):
            part = _chunk_part(named_chunk, slice(at, stop))
            rows = self._tapped.advance(part)
            outputs = rows if isinstance(rows, dict) else {OUTPUT: rows}
            taps = [outputs.pop(f"{_TAP}{i}") for i in range(len(self._network.layers))]
            for name, y in outputs.items():
                series.setdefault(name, []).append(y)
            if self._sparse and not due:
                self._pass(part)
            elif self._parts:
                self._see_fabrics(self._tapped, part, taps)
            elif part.count:
                self._see_rows(part, taps)
        return outputs_by_port(self._network, chunk.x, {name: np.concatenate(ys, 1) for name, ys in series.items()})

    def _program_rows(
        self, spec: Program, stream: RowStream, chunk: StreamChunk, named_chunk: StreamChunk
    ) -> Array | dict[str, Array]:
        """Run rows through a watched program, whose outputs include the activity of regions and edges."""
        from volumetric.observe.program_scene import program_frames

        parts: list[Array] = []
        for at, stop, due in self._cuts(chunk.count):
            part = _chunk_part(named_chunk, slice(at, stop))
            rows = stream.advance(part)
            assert not isinstance(rows, dict)
            parts.append(rows)
            if self._sparse and not due:
                self._pass(part)
                continue
            some = slice(None) if self._row is None else slice(self._row, self._row + 1)
            first = self._first_row(part)
            rms, fired, edge = program_frames(spec, self.scene, rows[some, first:])
            for i in range(part.count - first):
                self._see(rms[i], fired[i], reset=self._resets(part, first + i), edge=edge[i])
        width = max(end for _, end in spec.ports("outputs").values())
        return outputs_by_port(self._network, chunk.x, {OUTPUT: np.concatenate(parts, 1)[..., :width]})

    @property
    def _full(self) -> bool:
        return len(self._stored) >= self._room and self.tell is None

    @property
    def _sparse(self) -> bool:
        """Whether frames are only told, a limited number of times a second."""
        return len(self._stored) >= self._room and self.tell is not None and self._pace is not None

    def _cuts(self, count: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the rows of each call, and whether its last row has a frame.

        A call has all rows, so that it computes what it does unrecorded; with fabrics it ends at the next frame.
        """
        at = stop = 0
        while at < count or not stop:
            if self._sparse and self._pace is not None:
                calls = self._pace.calls(count - at, cut=bool(self._parts))
                yield from ((at + first, at + last, due) for first, last, due in calls)
                return
            stop = count if not self._parts or self._full else min(at + 1 + -self.tick_count % self._every, count)
            yield at, stop, True
            if at == stop:
                return
            at = stop

    def _pass(self, chunk: StreamChunk, per_row: int = 1) -> None:
        """Count rows that have no frame."""
        self.tick_count += chunk.count * per_row
        self._missed += chunk.count * per_row
        self._note_resets(chunk)

    def _first_row(self, chunk: StreamChunk) -> int:
        """Return the first row of a call that has a frame: the last one if frames are sparse; pass those before."""
        first = chunk.count - 1 if self._sparse else 0
        self._pass(_chunk_part(chunk, slice(0, first)))
        return first

    def _see_rows(self, chunk: StreamChunk, taps: list[Array]) -> None:
        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        first = self._first_row(chunk)
        taps = [y[some, first:] for y in taps]
        sizes = [y.swapaxes(0, 1).reshape(y.shape[1], -1).astype(np.float64) for y in taps]
        with np.errstate(over="ignore", invalid="ignore"):
            rms = np.stack([np.sqrt(np.square(y).mean(1)) for y in sizes], 1)
        for i in range(len(rms)):
            self._see(rms[i], np.ones(len(taps), bool), reset=self._resets(chunk, first + i))

    def _see_fabrics(self, stream: RowStream, chunk: StreamChunk, taps: list[Array]) -> None:
        """Record the last row of a call, if it has a frame."""
        if not chunk.count or self._full:
            self._pass(chunk)
            return
        if not self._sparse and (self.tick_count + chunk.count - 1) % self._every:
            self.tick_count += chunk.count
            self._note_resets(chunk)
            return
        from volumetric.observe.fabric_scene import awake_nodes, cells_of, strengths

        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        rms = strengths(
            self._network,
            self._parts,
            {coord: y[some, -1] for coord, y in zip(self._network.layers, taps, strict=True)},
            {name: np.asarray(x)[some, -1] for name, x in chunk.x.items()},
            cells_of(stream, self._parts, self._row),
        )
        self.tick_count += chunk.count - 1
        if self._sparse:
            self._missed += chunk.count - 1
        self._note_resets(_chunk_part(chunk, slice(0, -1)))
        awoken = awake_nodes(stream, self._parts, np.ones(len(taps), bool))
        self._see(rms, awoken, reset=self._resets(chunk, chunk.count - 1))

    def _ticks(self, stream: ClockedStream, chunk: StreamChunk, per_row: int) -> Array | dict[str, Array]:
        if not chunk.count or self._full:
            self._pass(chunk, per_row)
            return stream.advance(chunk, per_row=per_row)
        outputs: list[Array | dict[str, Array]] = []
        if self._sparse and self._pace is not None:
            for at, stop, due in self._pace.calls(chunk.count):
                part = _chunk_part(chunk, slice(at, stop))
                outputs += self._last_tick(stream, part, per_row) if due else [self._bulk(stream, part, per_row)]
        else:
            for row in range(chunk.count):
                for late in range(per_row):
                    now = StreamChunk(x={}, count=1) if late else _chunk_part(chunk, slice(row, row + 1))
                    outputs.append(self._tick(stream, now))
        if isinstance(outputs[0], Mapping):
            return {
                name: np.concatenate([y[name] for y in outputs if isinstance(y, Mapping)], 1) for name in outputs[0]
            }
        return np.concatenate([y for y in outputs if not isinstance(y, Mapping)], 1)

    def _tick(self, stream: ClockedStream, now: StreamChunk) -> Array | dict[str, Array]:
        """Run one tick and record it."""
        fires = self._fires(stream, now.x, now.resets)
        outputs = stream.advance(now)
        if self._parts:
            self._hold(stream, now)
        self._see_tick(stream, fires, reset=self._resets(now, 0))
        return outputs

    def _bulk(self, stream: ClockedStream, chunk: StreamChunk, per_row: int) -> Array | dict[str, Array]:
        """Run ticks without a frame."""
        self._pass(chunk, per_row)
        if self._parts:
            self._hold(stream, chunk)
        return stream.advance(chunk, per_row=per_row)

    def _last_tick(self, stream: ClockedStream, chunk: StreamChunk, per_row: int) -> list[Array | dict[str, Array]]:
        """Run ticks and record the last one: alone, if the states do not say afterwards what computed."""
        if layers_fired(stream.clocked, stream.read, stream.batch) is not None:
            outputs = self._bulk(stream, chunk, per_row)
            self.tick_count -= 1
            self._missed -= 1
            fires = layers_fired(stream.clocked, stream.read, stream.batch)
            assert fires is not None
            self._see_tick(stream, self._of_streams(fires), reset=False)
            return [outputs]
        last = chunk.count - 1
        parts = [(_chunk_part(chunk, slice(0, last)), per_row)] if last else []
        now = _chunk_part(chunk, slice(last, None))
        if per_row > 1:
            parts.append((now, per_row - 1))
            now = StreamChunk(x={}, count=1)
        return [*(self._bulk(stream, part, ticks) for part, ticks in parts), self._tick(stream, now)]

    def _hold(self, stream: ClockedStream, chunk: StreamChunk) -> None:
        """Note the strength of the last row of each input, which it has until another row comes."""
        from volumetric.observe.fabric_scene import strength

        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        for name, x in inputs_by_port(self._network, chunk.x, stream.batch).items():
            self._held[name] = np.asarray(strength(np.asarray(x)[some, -1:]))

    def _see_tick(self, stream: ClockedStream, fires: Array, *, reset: bool) -> None:
        """Record the last tick, in which some layers computed."""
        rms = np.asarray(stream.activity(self._row))
        if self._parts:
            from volumetric.observe.fabric_scene import awake_nodes, cells_of, strengths

            layers = {coord: np.asarray(of) for coord, of in zip(self._network.layers, rms.tolist(), strict=True)}
            cells = cells_of(stream, self._parts, self._row)
            rms = strengths(self._network, self._parts, layers, self._held, cells)
            fires = awake_nodes(stream, self._parts, fires)
        self._see(rms, fires, reset=reset)

    def _resets(self, chunk: StreamChunk, t: int) -> bool:
        if chunk.resets is None:
            return False
        return bool(chunk.resets[slice(None) if self._row is None else self._row, t].any())

    def _fires(self, stream: ClockedStream, inputs: Mapping[str, Array], reset: Array | None) -> Array:
        """Return which layers compute at the next tick, in any of the recorded streams."""
        marks = np.zeros(stream.batch, bool) if reset is None else reset[:, 0] != 0
        fires = firing_layers(stream.clocked, stream.read, {name: x[:, 0] for name, x in inputs.items()}, marks)
        return self._of_streams(fires)

    def _of_streams(self, fires: Array) -> Array:
        """Return which layers compute in any of the recorded streams, from ``[layers, streams]``."""
        return np.asarray(fires[:, slice(None) if self._row is None else self._row].reshape(len(fires), -1).any(1))

    def _see(self, rms: Array, fired: Array, *, reset: bool, edge: Array | None = None) -> None:
        self.tick_count += 1
        self._reset_stored |= reset
        self._reset_told |= reset
        if not self._sparse and (self.tick_count - 1) % self._every:
            return
        edge = np.zeros(0) if edge is None else edge
        frame = ActivityFrame(
            t=self.tick_count, rms=np.asarray(rms, np.float64), fired=fired, reset=self._reset_stored, edge=edge
        )
        if len(self._stored) < self._room:
            self._stored.append(frame)
            self._reset_stored = False
        else:
            self._missed += 1
        if self.tell is not None and (self._pace is None or self._pace.due):
            self.tell(replace(frame, reset=self._reset_told))
            self._reset_told = False
            if self._pace is not None:
                self._pace.skip()

    def _note_resets(self, chunk: StreamChunk) -> None:
        if any(self._resets(chunk, row) for row in range(chunk.count)):
            self._reset_stored = self._reset_told = True

    def recording(self, *, title: str = "", device: str = "", seed: int | None = None, per_row: int = 1) -> Recording:
        """Return the frames so far as bytes, each group of nodes scaled by its largest finite value of some frames."""
        machine = self._stream.clocked if isinstance(self._stream, ClockedStream) else self._stream.network
        meta = RecordingMeta(
            title=title,
            network=hashlib.sha256(machine.to_json().encode()).hexdigest(),
            device=device,
            seed=seed,
            row=self._row,
            every=self._every,
            per_row=per_row,
            missed=self._missed,
        )
        return Recording(meta=meta, scene=self.scene, **self._stored.arrays())


def _chunk_part(chunk: StreamChunk, at: slice) -> StreamChunk:
    """Return a slice of a chunk's rows."""
    resets = None if chunk.resets is None else chunk.resets[:, at]
    count = len(range(*at.indices(chunk.count)))
    return StreamChunk(x={name: x[:, at] for name, x in chunk.x.items()}, count=count, resets=resets)
