"""Emits ticks of a clocked network as graph nodes, bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from volumetric.base._typing import ROWS, Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.clocked.buckets import Bucket, PlaneRef, buckets_of
from volumetric.clocked.layer_clocks import ClockReads
from volumetric.clocked.machine import Clocked
from volumetric.clocked.states import port_key, stream_states, wait_key
from volumetric.graph.build import GraphBuilder
from volumetric.graph.state_spec import StateSpec, bounded_states
from volumetric.layers import MLP, Dense, SwiGLU
from volumetric.layers.clock_steps import GraphClockOps, counters, step
from volumetric.layers.emit_scope import Scope
from volumetric.network.grid import Coord
from volumetric.run.kv_value import KvValue, as_numbers
from volumetric.run.stream_buffers import StreamBufferSpec

GetWeight: TypeAlias = Callable[[str, Shape], int]
GetStack: TypeAlias = Callable[[Sequence[str], Shape], int]
"""Keys of equal parameters, and the shape of each → one tensor ``[n, …]``, with matrices transposed: products
are fastest if the columns are outputs."""

PIECES = 12
"""Maximum number of slices to concatenate into a bucket's input; with more, rows are gathered from a table."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Input and output of a bucket at a tick, ``[n, streams, …]``, and what fired: ``[n or 1, streams]``; None: all."""

    x: int
    y: int
    fires: int | None


class Machine:
    """A clocked network for a number of streams: its buckets and their state buffers.

    Attributes
    ----------
    places, named : coordinate, or its text → bucket and row
    stream_states : key → state of a stream, independent of the layout
    buffers : key → state buffer, with the axes ``[n, streams, …]`` of planes
    """

    def __init__(self, clocked: Clocked, batch: int) -> None:
        self.clocked: Clocked = clocked
        self.batch: int = batch
        self.buckets: tuple[Bucket, ...] = buckets_of(clocked)
        self.places: dict[Coord, tuple[int, int]] = {
            c: (i, n) for i, bucket in enumerate(self.buckets) for n, c in enumerate(bucket.coords)
        }
        self.named: dict[str, tuple[int, int]] = {str(coord): place for coord, place in self.places.items()}
        self.buffers: dict[str, StreamBufferSpec] = {}
        self.stream_states: dict[str, StateSpec]
        states = self.stream_states = stream_states(clocked)
        for name, port in clocked.network.ports.items():
            if port_key(name) in states:
                self.buffers[port_key(name)] = StreamBufferSpec(port.shape, dtype=port.dtype)
        for i, bucket in enumerate(self.buckets):
            for k in range(1, bucket.history + 1):
                dtype = states[f"out/{bucket.coords[0]}/{k}"].dtype
                self.buffers[f"plane/{i}/{k}"] = StreamBufferSpec(
                    bucket.shape, bucket.size, separate_axes=True, dtype=dtype
                )
            if bucket.read:
                self.buffers[f"plane/{i}/0"] = StreamBufferSpec(bucket.reads, bucket.size, separate_axes=True)
            if bucket.clock is not None:
                begun = enumerate(counters(bucket.clock))
                self.buffers |= {wait_key(i, n): StreamBufferSpec((1,), start=start) for n, start in begun}
            self.buffers |= self.layer_states(i)
        if clocked.start == "wavefront":
            self.buffers["age"] = StreamBufferSpec((1,))

    def layer_states(self, i: int) -> dict[str, StreamBufferSpec]:
        """Return the state buffers of a bucket's layers, by key."""
        bucket = self.buckets[i]
        states = () if bucket.identity else bounded_states(bucket.spec.states((ROWS, *bucket.reads)), bucket.spec.kind)
        wheres = [(f"bucket/{i}", bucket.size)] if bucket.way == "rows" else [(str(c), 1) for c in bucket.coords]
        return {
            f"{where}/{state.name}": StreamBufferSpec(state.shape, rows) for where, rows in wheres for state in states
        }

    def locate(self, key: str) -> tuple[str, int | None]:
        """Return the buffer of the state `key` of `stream_states`, and its row there; None: the whole buffer."""
        kind, _, rest = key.partition("/")
        if kind in ("out", "read", "wait"):
            coord, _, back = rest.partition("/")
            i, n = self.named[coord]
            if kind == "wait":
                return wait_key(i, int(back or 0)), None
            return f"plane/{i}/{back if kind == 'out' else 0}", n
        if kind in ("port", "age"):
            return key, None
        i, n = self.named[kind]
        return (f"bucket/{i}/{rest}", n) if self.buckets[i].way == "rows" else (key, 0)

    def gather(self, get: Callable[[str], Array]) -> dict[str, Array]:
        """Return all states, ``[streams, …]``, from buffers ``[n, streams, …]``."""
        places = {key: self.locate(key) for key in self.stream_states}
        buffers = {name: get(name) for name in dict.fromkeys(name for name, _ in places.values())}
        return {key: buffers[name][row or 0].copy() for key, (name, row) in places.items()}

    def scatter(self, values: Mapping[str, KvValue]) -> dict[str, Array]:
        """Return the buffers of states in the form of `gathered`; missing states get their start values."""
        arrays = {name: buffer.initial_value(self.batch) for name, buffer in self.buffers.items()}
        for key, value in values.items():
            name, row = self.locate(key)
            self.buffers[name].by_stream(arrays[name], self.batch)[row or 0] = as_numbers(value, arrays[name].dtype)
        return arrays


class TickWindow:
    """Emitter of consecutive ticks: a graph builder and the current value of every state.

    Parameters
    ----------
    state : buffer of the machine → tensor; updated by each tick
    param : returns a weight
    stack : returns several weights as one tensor
    """

    def __init__(
        self, work: GraphBuilder, machine: Machine, state: dict[str, int], param: GetWeight, stack: GetStack
    ) -> None:
        self.work: GraphBuilder = work
        self.machine: Machine = machine
        self.state: dict[str, int] = state
        self.param: GetWeight = param
        self._stack = stack
        self._stacks: dict[tuple[str, ...], int] = {}
        self.moments: list[Moment] = []
        """Inputs and outputs of the last tick, by bucket."""
        self.before: dict[str, int] = {}
        """States at the start of the last tick, after resets."""

    def tick(self, new_rows: Mapping[str, int], resets: int | None = None) -> dict[str, int]:
        """Emit one tick.

        Parameters
        ----------
        new_rows : input → rows ``[streams, …]``; inputs that are left out hold their value
        resets : ``[streams]``, 1 resets a stream; None: no resets

        Returns
        -------
        Output → rows ``[streams, …]``
        """
        work, machine, state = self.work, self.machine, self.state
        if resets is not None:
            self._reset(resets, new_rows)
        ports = {name: self._port(name, new_rows) for name in machine.clocked.network.ports}
        before = self.before = dict(state)
        self.moments = []
        for i, bucket in enumerate(machine.buckets):
            x = self._gather(bucket.slots, bucket.reads, before, ports)
            fires = self._fires(i, bucket, before, ClockReads(work, machine, before, ports, new_rows))
            y = self._compute(i, bucket, x, fires, before, ports)
            self.moments.append(Moment(x, y, fires))
            if bucket.read:
                state[f"plane/{i}/0"] = x
            for k in range(2, bucket.history + 1):
                state[f"plane/{i}/{k}"] = before[f"plane/{i}/{k - 1}"]
            state[f"plane/{i}/1"] = y
        for name, row in ports.items():
            if port_key(name) in state:
                state[port_key(name)] = row
        if "age" in state:
            state["age"] = work.affine(before["age"], 1.0, 1.0)
        return {name: self._row(machine.places[coord]) for name, coord in machine.clocked.network.taps.items()}

    def _row(self, place: tuple[int, int]) -> int:
        i, n = place
        plane = self.state[f"plane/{i}/1"]
        return self.work.reshape(self.work.part(plane, 0, n, n + 1), self.work.shape(plane)[1:])

    def _port(self, name: str, new_rows: Mapping[str, int]) -> int:
        machine = self.machine
        if name in new_rows:
            return new_rows[name]
        if port_key(name) in self.state:
            return self.state[port_key(name)]
        return self.work.zeros((machine.batch, *machine.clocked.network.ports[name].shape))

    def _reset(self, resets: int, new_rows: Mapping[str, int]) -> None:
        """Reset the states of streams to their start values."""
        work = self.work
        resets = work.reshape(resets, (1, self.machine.batch))
        stays = work.affine(resets, -1.0, 1.0)
        for key, tensor in self.state.items():
            buffer = self.machine.buffers[key]
            if key.startswith("port/") and key.removeprefix("port/") in new_rows:
                continue  # the arriving row replaces it
            if key.startswith("trail/") and buffer.dtype == "int32":
                continue  # it is enough to reset its marks of what fired
            if buffer.dtype == "int32":
                raise UnsupportedError(
                    f"cannot reset a stream while input {key.removeprefix('port/')!r} holds ids",
                    hint="pass a row of this input at every tick with a reset",
                )
            fresh = work.binary("mul_nonzero", tensor, self._mask(stays, buffer))
            self.state[key] = (
                work.add(fresh, self._mask(work.affine(resets, buffer.start), buffer)) if buffer.start else fresh
            )

    def _mask(self, chosen: int, buffer: StreamBufferSpec) -> int:
        """Reshape ``[n or 1, streams]`` to broadcast against a buffer."""
        work, batch = self.work, self.machine.batch
        ones = (1,) * len(buffer.row)
        if buffer.separate_axes:
            return work.reshape(chosen, (work.shape(chosen)[0], batch, *ones))
        return work.reshape(work.broadcast(chosen, (buffer.count, batch)), (buffer.count * batch, *ones))

    def _gather(
        self,
        slots: Sequence[Sequence[PlaneRef | None]],
        row: Shape,
        before: Mapping[str, int],
        ports: Mapping[str, int],
    ) -> int:
        """Emit the input of a bucket: the sum of its slots, ``[n, streams, …]``."""
        return self.work.add(*(self._slot(refs, row, before, ports) for refs in slots))

    def _slot(
        self, refs: Sequence[PlaneRef | None], row: Shape, before: Mapping[str, int], ports: Mapping[str, int]
    ) -> int:
        work, lead = self.work, self.machine.batch
        runs: list[tuple[PlaneRef | None, int]] = []
        for ref in refs:
            if runs and _is_ascending(runs[-1], ref):
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((ref, 1))
        if len(runs) > PIECES:
            return self._gather_planes(refs, row, before, ports)
        parts: list[int] = []
        for ref, count in runs:
            if ref is None:
                parts.append(work.zeros((count, lead, *row)))
            elif ref.port:
                parts.append(work.broadcast(work.reshape(ports[ref.port], (1, lead, *row)), (count, lead, *row)))
            else:
                parts.append(work.part(before[f"plane/{ref.bucket}/{ref.back}"], 0, ref.index, ref.index + count))
        return work.concat(parts, 0)

    def _gather_planes(
        self, refs: Sequence[PlaneRef | None], row: Shape, before: Mapping[str, int], ports: Mapping[str, int]
    ) -> int:
        """Gather rows from all planes that are read, by index."""
        work, lead = self.work, self.machine.batch
        width = lead * prod(row)
        first: dict[str, int] = {}
        table: list[int] = []
        count = 0

        def place(name: str, tensor: int, rows: int) -> int:
            nonlocal count
            if name not in first:
                first[name] = count
                table.append(work.reshape(tensor, (rows, width)))
                count += rows
            return first[name]

        ids: list[int] = []
        for ref in refs:
            if ref is None:
                ids.append(place("", work.zeros((1, width)), 1))
            elif ref.port:
                ids.append(place(f"port/{ref.port}", ports[ref.port], 1))
            else:
                name = f"plane/{ref.bucket}/{ref.back}"
                ids.append(place(name, before[name], work.shape(before[name])[0]) + ref.index)
        gathered = work.gather_rows(work.concat(table, 0), work.constant(np.array(ids, np.int32), "readers"))
        return work.reshape(gathered, (len(refs), lead, *row))

    def sharing_weights(self, state: dict[str, int]) -> TickWindow:
        """Return another window with the same weights."""
        window = TickWindow(self.work, self.machine, state, self.param, self._stack)
        window._stacks = self._stacks
        return window

    def apply(self, i: int, x: int) -> int:
        """Emit the output of a bucket's layers for their input, ``[n, streams, …]``; updates their states."""
        bucket = self.machine.buckets[i]
        return self._grouped(bucket, x) if bucket.way == "grouped" else self._layers(i, bucket, x)

    def _compute(
        self,
        i: int,
        bucket: Bucket,
        x: int,
        fires: int | None,
        before: Mapping[str, int],
        ports: Mapping[str, int],
    ) -> int:
        """Emit the new output of a bucket, ``[n, streams, …]``; layers that do not fire keep theirs."""
        work, state = self.work, self.state
        if bucket.identity:
            y = x
        elif bucket.skips is not None:
            y = work.add(x, self._slot(bucket.skips, bucket.reads, before, ports))
        else:
            y = self.apply(i, x)
        if fires is None:
            return y
        whole = self.machine.buffers[f"plane/{i}/1"]
        for key, buffer in self.machine.layer_states(i).items():
            own = fires
            if bucket.way == "each" and work.shape(fires)[0] > 1:
                n = self.machine.named[key.partition("/")[0]][1]
                own = work.part(fires, 0, n, n + 1)
            state[key] = self._select_fired(own, buffer, state[key], before[key])
        return self._select_fired(fires, whole, y, before[f"plane/{i}/1"])

    def _fires(self, i: int, bucket: Bucket, before: Mapping[str, int], watch: ClockReads) -> int | None:
        """Emit the coordinates that fire, ``[n or 1, streams]``; None: all, at every tick."""
        work, clocked = self.work, self.machine.clocked
        fires: int | None = None
        if "age" in before and any(clocked.depths[c] for c in bucket.coords):
            depths = np.array([[clocked.depths[c] - 0.5] for c in bucket.coords])
            age = work.reshape(before["age"], (1, self.machine.batch))
            fires = work.binary("greater", age, work.constant(depths, "depths"))
        if bucket.clock is not None:
            counts = [before[wait_key(i, n)] for n in range(len(counters(bucket.clock)))]
            due, after = step(bucket.clock, counts, GraphClockOps(work, watch.number, watch.happens))
            work.detached.update((due, *after))
            self.state |= {wait_key(i, n): count for n, count in enumerate(after)}
            due = work.reshape(due, (1, self.machine.batch))
            fires = due if fires is None else work.binary("mul", fires, due)
        return fires

    def _select_fired(self, fires: int, buffer: StreamBufferSpec, new: int, old: int) -> int:
        """Emit `new` if a coordinate fires in a stream, else `old`; a select, so NaN of the other does not leak."""
        work, mask = self.work, self._mask(fires, buffer)
        other = work.affine(mask, -1.0, 1.0)
        return work.add(work.binary("mul_nonzero", new, mask), work.binary("mul_nonzero", old, other))

    def _layers(self, i: int, bucket: Bucket, x: int) -> int:
        """Emit the layers of a bucket by their emit rules: all coordinates as rows of one call, or one by one."""
        work, batch, network = self.work, self.machine.batch, self.machine.clocked.network
        each = [(f"bucket/{i}", bucket.coords[0], bucket.size)]
        if bucket.way == "each":
            each = [(str(coord), coord, 1) for coord in bucket.coords]
        outputs: list[int] = []
        for n, (path, coord, count) in enumerate(each):
            rows = work.reshape(work.part(x, 0, n, n + count), (count * batch, *bucket.reads))

            def param(name: str, shape: Shape, where: str = str(coord)) -> int:
                return self.param(network.resolve(f"{where}/{name}"), shape)

            scope = Scope(work=work, param=param, path=path, sequences=count * batch, resumes=True, states=self.state)
            y = scope.emit(bucket.spec, rows)
            outputs.append(work.reshape(y, (count, batch, *bucket.shape)))
        return work.concat(outputs, 0)

    def _grouped(self, bucket: Bucket, x: int) -> int:
        """Emit layers with separate weights as a grouped matrix product."""
        work, spec = self.work, bucket.spec
        flat = work.reshape(x, (bucket.size, prod(work.shape(x)[1:-1]), work.shape(x)[-1]))
        if isinstance(spec, Dense):
            y = self._product(bucket, "", flat, spec.activation)
        elif isinstance(spec, MLP):
            y = self._product(bucket, "down.", self._product(bucket, "up.", flat, spec.activation))
        else:
            assert isinstance(spec, SwiGLU)
            gate, up = self._product(bucket, "gate.", flat, spec.activation), self._product(bucket, "up.", flat)
            y = self._product(bucket, "down.", work.binary("mul", gate, up))
        return work.reshape(y, (bucket.size, self.machine.batch, *bucket.shape))

    def _product(self, bucket: Bucket, name: str, x: int, activation: str = "linear") -> int:
        work = self.work
        shapes = {p.name: p.shape for p in bucket.spec.params()}
        weight = self._stack_weights(bucket, name + "weight", shapes)
        bias = self._stack_weights(bucket, name + "bias", shapes) if name + "bias" in shapes else None
        return work.unary(work.gemm(x, weight, bias), activation)

    def _stack_weights(self, bucket: Bucket, name: str, shapes: Mapping[str, Shape]) -> int:
        keys = tuple(self.machine.clocked.network.resolve(f"{coord}/{name}") for coord in bucket.coords)
        if keys not in self._stacks:
            self._stacks[keys] = self._stack(keys, shapes[name][::-1])
        return self._stacks[keys]


def _is_ascending(run: tuple[PlaneRef | None, int], ref: PlaneRef | None) -> bool:
    """Return whether `ref` is the row after the last of `run`."""
    first, count = run
    if first is None or ref is None:
        return first is ref
    if first.port or ref.port:
        return first.port == ref.port
    return (first.bucket, first.back, first.index + count) == (ref.bucket, ref.back, ref.index)
