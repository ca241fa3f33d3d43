"""Activity of layers while a stream runs: frames, by tick or by row, and recordings of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.clocked.layer_clocks import firing_layers
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.network import INPUT, OUTPUT, Network, Params
from volumetric.observe.recording import Recording, RecordingMeta
from volumetric.observe.scene import Scene, parts_of, program_of, scene_of
from volumetric.run.streams import RowStream, open_stream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.run.streams.stream_io import inputs_by_port, outputs_by_port

if TYPE_CHECKING:
    from volumetric.program.layer.program_layer import Program

MOST: Final = 1_000_000
"""Default limit on the values of a recording, nodes times frames."""
_TAP: Final = "layer."
_CALL: Final = 64  # rows per call
AnyStream = ClockedStream | RowStream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivityFrame:
    """Activity of all nodes of a scene at one tick.

    Attributes
    ----------
    t : number of the tick or row, from 1
    rms : root mean square of each node's output; float64 ``[nodes]``
    fired : whether each node computed; bool ``[nodes]``
    reset : whether the stream was reset
    edge : attention or gate of the scene's first edges, 0 … 1; for a program 1 if the edge fired; float64, may be
        empty
    """

    t: int
    rms: Array
    fired: Array
    reset: bool
    edge: Array = field(default_factory=lambda: np.zeros(0))


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

    Raises
    ------
    SpecError : `row` is out of range, or `every` is below 1
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
        self.frames: list[ActivityFrame] = list[ActivityFrame]()
        self._stream, self._row, self._every = stream, row, every
        self.tell = tell
        self._room = max(1, most // len(self.scene.nodes))
        self._missed = 0
        self._tapped: RowStream | None = None
        self._program = program_of(self._network) if isinstance(stream, RowStream) else None
        if self._program is not None and isinstance(stream, RowStream):
            from volumetric.observe.firing import watched_network

            self._tapped = stream.tap({}, watched_network(stream.network))
        elif isinstance(stream, RowStream):
            layers = stream.network.layers
            self._tapped = stream.tap({f"{_TAP}{i}": coord for i, coord in enumerate(layers)})

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

    def _rows(self, chunk: StreamChunk) -> Array | dict[str, Array]:
        if self._tapped is None:
            raise SpecError("the recorder is closed")
        self._tapped.live_as(self._stream)  # masks of its nodes may have changed
        named_chunk = replace(chunk, x=inputs_by_port(self._network, chunk.x, self._tapped.batch))
        if self._program is not None:
            return self._program_rows(self._program, self._tapped, chunk, named_chunk)
        series: dict[str, list[Array]] = {}
        for at, stop in self._cuts(chunk.count):
            part = _chunk_part(named_chunk, slice(at, stop))
            rows = self._tapped.advance(part)
            outputs = rows if isinstance(rows, dict) else {OUTPUT: rows}
            taps = [outputs.pop(f"{_TAP}{i}") for i in range(len(self._network.layers))]
            for name, y in outputs.items():
                series.setdefault(name, []).append(y)
            if self._parts:
                self._see_fabrics(self._tapped, part, taps)
            elif part.count:
                self._see_rows(part, taps)
        return outputs_by_port(self._network, chunk.x, {name: np.concatenate(ys, 1) for name, ys in series.items()})

    def _program_rows(
        self, spec: Program, stream: RowStream, chunk: StreamChunk, named_chunk: StreamChunk
    ) -> Array | dict[str, Array]:
        """Run rows through a watched program, whose outputs include the activity of regions and edges."""
        from volumetric.observe.program_scene import program_frames

        rows = stream.advance(named_chunk)
        assert not isinstance(rows, dict)
        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        rms, fired, edge = program_frames(spec, self.scene, rows[some])
        for t in range(chunk.count):
            self._see(rms[t], fired[t], reset=self._resets(chunk, t), edge=edge[t])
        width = max(end for _, end in spec.ports("outputs").values())
        return outputs_by_port(self._network, chunk.x, {OUTPUT: rows[..., :width]})

    @property
    def _full(self) -> bool:
        return len(self.frames) >= self._room and self.tell is None

    def _cuts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield the rows of each call: all rows, or with fabrics up to the next row with a frame."""
        at = stop = 0
        while at < count or not stop:
            stop = count if not self._parts or self._full else min(at + 1 + -self.tick_count % self._every, count)
            yield at, stop
            if at == stop:
                return
            at = stop

    def _see_rows(self, chunk: StreamChunk, taps: list[Array]) -> None:
        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        sizes = [y[some].swapaxes(0, 1).reshape(y.shape[1], -1).astype(np.float64) for y in taps]
        with np.errstate(over="ignore", invalid="ignore"):
            rms = np.stack([np.sqrt(np.square(y).mean(1)) for y in sizes], 1)
        for t in range(chunk.count):
            self._see(rms[t], np.ones(len(taps), bool), reset=self._resets(chunk, t))

    def _see_fabrics(self, stream: RowStream, chunk: StreamChunk, taps: list[Array]) -> None:
        """Record the last row of a call, if it has a frame."""
        if not chunk.count or self._full:
            self._missed += chunk.count
        if not chunk.count or self._full or (self.tick_count + chunk.count - 1) % self._every:
            self.tick_count += chunk.count
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
        awoken = awake_nodes(stream, self._parts, np.ones(len(taps), bool))
        self._see(rms, awoken, reset=self._resets(chunk, chunk.count - 1))

    def _ticks(self, stream: ClockedStream, chunk: StreamChunk, per_row: int) -> Array | dict[str, Array]:
        if not chunk.count or self._full:
            self._missed += chunk.count * per_row
            self.tick_count += chunk.count * per_row
            return stream.advance(chunk, per_row=per_row)
        outputs: list[Array | dict[str, Array]] = []
        for row in range(chunk.count):
            for late in range(per_row):
                reset = not late and self._resets(chunk, row)
                now = StreamChunk(x={}, count=1) if late else _chunk_part(chunk, slice(row, row + 1))
                fires = self._fires(stream, now.x, now.resets)
                outputs.append(stream.advance(now))
                rms = np.asarray(stream.activity(self._row))
                if self._parts:
                    rms, fires = self._see_tick(stream, now, rms, fires)
                self._see(rms, fires, reset=reset)
        if isinstance(outputs[0], Mapping):
            return {
                name: np.concatenate([y[name] for y in outputs if isinstance(y, Mapping)], 1) for name in outputs[0]
            }
        return np.concatenate([y for y in outputs if not isinstance(y, Mapping)], 1)

    def _see_tick(self, stream: ClockedStream, now: StreamChunk, rms: Array, fires: Array) -> tuple[Array, Array]:
        """Return the strength of each node after a tick and which nodes computed, from those of each layer."""
        from volumetric.observe.fabric_scene import awake_nodes, cells_of, strength, strengths

        some = slice(None) if self._row is None else slice(self._row, self._row + 1)
        for name, x in inputs_by_port(self._network, now.x, stream.batch).items():
            self._held[name] = np.asarray(strength(np.asarray(x)[some]))
        layers = {coord: np.asarray(of) for coord, of in zip(self._network.layers, rms.tolist(), strict=True)}
        cells = cells_of(stream, self._parts, self._row)
        return strengths(self._network, self._parts, layers, self._held, cells), awake_nodes(stream, self._parts, fires)

    def _resets(self, chunk: StreamChunk, t: int) -> bool:
        if chunk.resets is None:
            return False
        return bool(chunk.resets[slice(None) if self._row is None else self._row, t].any())

    def _fires(self, stream: ClockedStream, inputs: Mapping[str, Array], reset: Array | None) -> Array:
        """Return which layers compute at the next tick, in any of the recorded streams."""
        marks = np.zeros(stream.batch, bool) if reset is None else reset[:, 0] != 0
        fires = firing_layers(stream.clocked, stream.read, {name: x[:, 0] for name, x in inputs.items()}, marks)
        return np.asarray(fires[:, slice(None) if self._row is None else self._row].reshape(len(fires), -1).any(1))

    def _see(self, rms: Array, fired: Array, *, reset: bool, edge: Array | None = None) -> None:
        self.tick_count += 1
        if (self.tick_count - 1) % self._every:
            return
        edge = np.zeros(0) if edge is None else edge
        frame = ActivityFrame(t=self.tick_count, rms=np.asarray(rms, np.float64), fired=fired, reset=reset, edge=edge)
        if len(self.frames) < self._room:
            self.frames.append(frame)
        else:
            self._missed += 1
        if self.tell is not None:
            self.tell(frame)

    def recording(self, *, title: str = "", device: str = "", seed: int | None = None, per_row: int = 1) -> Recording:
        """Return the frames so far as bytes, each group of nodes scaled by its largest finite value."""
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
        return assemble(meta, self.scene, self.frames)


def assemble(meta: RecordingMeta, scene: Scene, frames: list[ActivityFrame]) -> Recording:
    """Build a recording from frames."""
    rms = np.array([frame.rms for frame in frames], np.float64).reshape(len(frames), len(scene.nodes))
    top = scale_of(scene, rms.max(0, initial=0.0, where=np.isfinite(rms)))
    node, odd = as_bytes(scene, rms, top)
    known = np.where(odd, 0.0, rms)
    return Recording(
        meta=meta,
        scene=scene,
        ticks=np.array([frame.t for frame in frames], np.int64),
        node=node,
        odd=odd,
        fired=np.array([frame.fired for frame in frames], bool).reshape(node.shape),
        edge=edges_as_bytes(
            np.array([frame.edge for frame in frames], np.float64).reshape(
                len(frames), len(frames[0].edge) if frames else 0
            )
        ),
        reset=np.array([frame.reset for frame in frames], bool),
        scale=np.tile(top, (len(frames), 1)),
        meters={"mean": known.mean(1).astype(np.float32), "odd": odd.sum(1).astype(np.float32)},
    )


def scale_of(scene: Scene, largest: Array) -> F32Array:
    """Return the largest value of each group, 1 if all are 0, from the largest value of each node."""
    top = dict.fromkeys(scene.groups, 0.0)
    for node, value in zip(scene.nodes, largest.tolist(), strict=True):
        top[node.group] = max(top[node.group], value)
    with np.errstate(over="ignore"):
        scale = np.array([value or 1.0 for value in top.values()], np.float64).astype(np.float32)
    return np.minimum(scale, np.finfo(np.float32).max)


def as_bytes(scene: Scene, rms: Array, scale: F32Array) -> tuple[Array, Array]:
    """Return ``255 · min(1, rms / scale)`` for values ``[…, nodes]``, and a mask of values that are not finite."""
    of = scale.astype(np.float64)[scene.group_of]
    odd = ~np.isfinite(rms)
    part = np.where(odd, 0.0, rms) / of
    return np.rint(255 * np.clip(part, 0, 1)).astype(np.uint8), odd


def edges_as_bytes(values: Array) -> Array:
    """Return ``255 · value`` for attention and gates in 0 … 1."""
    return np.rint(255 * np.clip(np.nan_to_num(values), 0, 1)).astype(np.uint8)


def record(
    machine: AnyStream | Network | Clocked,
    x: Array | Mapping[str, Array],
    *,
    params: Params | None = None,
    device: AnyDevice = "auto",
    resets: Array | None = None,
    row: int | None = 0,
    every: int = 1,
    edges: int = 4000,
    title: str = "",
) -> Recording:
    """Run rows through a network and record the activity of its layers.

    Parameters
    ----------
    machine : streams, which continue; or a network, whose streams start here on `device` with `params`
    x : ``[batch, T, …]``, or a dict by input
    resets : ``[batch, T]``, 1 resets a stream before that row
    row : index of the stream to record; None: all streams together
    every : ticks or rows from one frame to the next
    edges : maximum number of edges in the scene; if there are more, an even sample is shown

    Raises
    ------
    ShapeError, SpecError : rows do not match the network's inputs, `row` is out of range, or `params` are missing

    Examples
    --------
    >>> record(network, x, params=params).save("run.scope")  # doctest: +SKIP
    """
    inputs = dict(x) if isinstance(x, Mapping) else {INPUT: np.asarray(x)}
    if isinstance(machine, (Network, Clocked)):
        if params is None:
            raise SpecError("a network needs params to run", hint="pass them: record(network, x, params=…)")
        batch = len(next(iter(inputs.values())))
        stream: AnyStream = open_stream(open_device(device), machine, params, batch=batch)
    else:
        stream = machine
    recorder = Recorder(stream, row=row, every=every, edges=edges, most=2**62)
    marks = None if resets is None else np.asarray(resets)
    count = max(np.shape(value)[1] if np.ndim(value) > 1 else 0 for value in inputs.values())
    try:
        for at in range(0, max(count, 1), _CALL):
            some = slice(at, at + _CALL)
            part = {name: value[:, some] for name, value in inputs.items()} if count else inputs
            now = None if marks is None else marks[:, some]
            recorder.advance(StreamChunk(x=part, count=min(_CALL, count - at), resets=now))
    finally:
        recorder.close()
    return recorder.recording(title=title, device="" if not isinstance(device, str) else device)


def _chunk_part(chunk: StreamChunk, at: slice) -> StreamChunk:
    """Return a slice of a chunk's rows."""
    resets = None if chunk.resets is None else chunk.resets[:, at]
    count = len(range(*at.indices(chunk.count)))
    return StreamChunk(x={name: x[:, at] for name, x in chunk.x.items()}, count=count, resets=resets)
