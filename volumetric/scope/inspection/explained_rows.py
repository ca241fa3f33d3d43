"""Runs recorded rows again on the reference device, in float64, up to the row whose numbers are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from volumetric.base._typing import ROWS, Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.clocked.layer_clocks import firing_layers
from volumetric.clocked.states import out_key, port_key
from volumetric.graph.build import GraphBuilder
from volumetric.graph.open_interpreter import positions_from
from volumetric.layers.emit_scope import Scope
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.network.wiring import Source
from volumetric.run.device import SequenceRows
from volumetric.run.graph.network_graph import layered_graph
from volumetric.run.lower import looks_ahead, lower
from volumetric.run.streams.row_stream import with_outputs
from volumetric.run.streams.stream_io import check_rows
from volumetric.scope.inspection.row_graph import EXPLAINED, Origin, RowGraph, buffers_of, evaluate, prepare_graph

if TYPE_CHECKING:
    from volumetric.devices.reference_state import ReferenceState

MOST_WEIGHTS: Final = 30_000_000
"""Maximum number of weights of a network whose numbers are explained: they are decoded to float64."""
_SNAPSHOTS: Final = 8
_OUTPUT: Final = "explained."


class ExplainedRows(Protocol):
    """Recorded rows of one sequence through a network."""

    @property
    def count(self) -> int:
        """Number of rows, or ticks."""
        ...

    def graph(self, coord: Coord, t: int) -> RowGraph:
        """Return all numbers of a layer at row `t`, from 0."""
        ...

    def held(self, coord: Coord, t: int) -> Array | None:
        """Return the output that a layer keeps at row `t`, float64; None: it computes a new one."""
        ...


def explained_rows(
    machine: Network | Clocked, params: Params, rows: Array | Mapping[str, Array], *, resets: Array | None, per_row: int
) -> ExplainedRows:
    """Return the rows of one sequence, ``[T, …]`` or ``[1, T, …]``, or by input.

    Raises
    ------
    UnsupportedError : the network has too many weights
    ShapeError : rows do not match the network's inputs
    """
    network = machine.network if isinstance(machine, Clocked) else machine
    size = sum(store.size for store in params.values())
    if size > MOST_WEIGHTS:
        raise UnsupportedError(
            f"numbers are explained for networks of up to {MOST_WEIGHTS:,} weights; this one has {size:,}",
            hint="its weights can be looked at nevertheless",
        )
    inputs, count = check_rows(network, _one_sequence(network, rows), 1)
    marks = np.zeros(count, bool) if resets is None else np.asarray(resets, bool).reshape(-1)
    if len(marks) != count:
        raise SpecError(f"resets: expected {count} marks, got {len(marks)}")
    arrays = {name: value[0] for name, value in inputs.items()}
    if isinstance(machine, Clocked):
        return _TickRows(machine, params, arrays, marks, per_row)
    return _NetworkRows(network, params, arrays, marks)


def _one_sequence(network: Network, rows: Array | Mapping[str, Array]) -> Array | dict[str, Array]:
    """Add the axis of sequences where it is missing."""
    if isinstance(rows, Mapping):
        axes = {name: len(port.shape) for name, port in network.ports.items()}
        return {n: np.asarray(x)[None] if np.ndim(x) == 1 + axes.get(n, 1) else np.asarray(x) for n, x in rows.items()}
    x = np.asarray(rows)
    port = next(iter(network.ports.values()))
    return x[None] if x.ndim == 1 + len(port.shape) else x


class _NetworkRows:
    """Rows of a network that computes row by row."""

    def __init__(self, network: Network, params: Params, rows: Mapping[str, Array], marks: Array) -> None:
        from volumetric.devices.reference_device import ReferenceDevice

        self._network, self._rows, self._marks = network, rows, marks
        self._coords = list(network.layers)
        plan = lower(with_outputs(network, {f"{_OUTPUT}{i}": coord for i, coord in enumerate(self._coords)}))
        self._whole = any(looks_ahead(plan, step) for step in plan.steps)
        self._plan = plan
        self._open, _ = layered_graph(plan, dialect=EXPLAINED)
        # noise depends on the number of a row in its call
        self._whole |= any(node.op == "gumbel" for node in self._open.nodes)
        self._params = params
        self._executable = ReferenceDevice(np.float64).compile(plan, params)
        self._snapshots: dict[int, ReferenceState] = {}
        self._last: tuple[int, RowGraph] | None = None

    @property
    def count(self) -> int:
        return len(self._marks)

    def held(self, coord: Coord, t: int) -> Array | None:
        return None

    def graph(self, coord: Coord, t: int) -> RowGraph:
        if self._last is None or self._last[0] != t:
            self._last = (t, self._evaluate(t))
        return self._last[1]

    def _evaluate(self, t: int) -> RowGraph:
        begin = int(np.flatnonzero(self._marks[: t + 1])[-1]) if self._marks[: t + 1].any() else 0
        end = t + 1
        state = self._executable.new_state()
        if self._whole:
            later = np.flatnonzero(self._marks[t + 1 :])
            end, first = t + 1 + int(later[0]) if later.size else self.count, begin
        else:
            first, state = t, self._state_before(begin, t)
        graph = prepare_graph(self._open, end - first)
        position = first - begin
        buffers = buffers_of(graph, self._params, state.values, position)
        left = iter([self._rows[name][first:end] for name in self._plan.inputs])
        inputs = [positions_from(position, end - first) if i in graph.derived else next(left) for i in graph.inputs]
        values = evaluate(graph, inputs, buffers)
        names = list(self._plan.outputs)
        outputs = {str(coord): graph.outputs[names.index(f"{_OUTPUT}{i}")] for i, coord in enumerate(self._coords)}
        fed = [i for i in graph.inputs if i not in graph.derived]
        origins = {i: Origin("input", name) for i, name in zip(fed, self._plan.inputs, strict=True)}
        for at, i in outputs.items():
            origins.setdefault(i, Origin("layer", at))
        return RowGraph(graph=graph, values=values, outputs=outputs, origins=origins, row=t - first)

    def _state_before(self, begin: int, t: int) -> ReferenceState:
        """Return the state after the rows `begin` … `t`."""
        known = max((at for at in self._snapshots if begin < at <= t), default=begin)
        state = self._snapshots[known].fork() if known > begin else self._executable.new_state()
        if known < t:
            part = {name: self._rows[name][known:t] for name in self._plan.inputs}
            x = part if len(part) > 1 else next(iter(part.values()))
            self._executable.run([SequenceRows(state, x, "last")])
            self._snapshots[t] = state.fork()
            while len(self._snapshots) > _SNAPSHOTS:
                self._snapshots.pop(next(iter(self._snapshots)))
        return state


class _TickRows:
    """Ticks of a clocked network."""

    def __init__(self, clocked: Clocked, params: Params, rows: Mapping[str, Array], marks: Array, per_row: int) -> None:
        from volumetric.devices.reference_device import ReferenceDevice

        self._clocked, self._params, self._rows, self._marks, self._per_row = clocked, params, rows, marks, per_row
        self._device = ReferenceDevice(np.float64)
        self._stream, self._at = clocked.stream_on(self._device, params), 0
        self._ticks: dict[int, _Tick] = {}

    @property
    def count(self) -> int:
        return len(self._marks) * self._per_row

    def held(self, coord: Coord, t: int) -> Array | None:
        return self._tick(t).held(coord)

    def graph(self, coord: Coord, t: int) -> RowGraph:
        return self._tick(t).graph(coord)

    def _tick(self, t: int) -> _Tick:
        if t not in self._ticks:
            if self._at > t:
                self._stream, self._at = self._clocked.stream_on(self._device, self._params), 0
            self._advance(t)
            row, late = divmod(t, self._per_row)
            new_rows = {} if late else {name: x[row : row + 1] for name, x in self._rows.items()}
            if not late and self._marks[row]:
                self._stream.reset()
            before = self._stream.state()
            fired = firing_layers(self._clocked, before.__getitem__, new_rows, np.zeros(1, bool))[:, 0]
            self._ticks[t] = _Tick(self._clocked, self._params, before, new_rows, fired)
            while len(self._ticks) > _SNAPSHOTS:
                self._ticks.pop(next(iter(self._ticks)))
            self._advance(t + 1)
        return self._ticks[t]

    def _advance(self, t: int) -> None:
        """Run ticks up to `t`."""
        while self._at < t:
            row, late = divmod(self._at, self._per_row)
            if late or t - self._at < self._per_row:
                resets = np.array([[float(self._marks[row])]]) if not late and self._marks[row] else None
                x = None if late else {name: of[None, row : row + 1] for name, of in self._rows.items()}
                self._stream.run(x, ticks=None if x else 1, resets=resets)
                self._at += 1
                continue
            last = min(t // self._per_row, row + 64)
            part = {name: of[None, row:last] for name, of in self._rows.items()}
            self._stream.run(part, per_row=self._per_row, resets=self._marks[None, row:last].astype(np.float32))
            self._at = last * self._per_row


class _Tick:
    """One tick: what each layer reads, and its states before."""

    def __init__(
        self,
        clocked: Clocked,
        params: Params,
        before: Mapping[str, Array],
        new_rows: Mapping[str, Array],
        fired: Array,
    ) -> None:
        self._clocked, self._params, self._before, self._new_rows = clocked, params, before, new_rows
        self._fired = fired
        self._graphs: dict[Coord, RowGraph] = {}

    def held(self, coord: Coord) -> Array | None:
        """Return the output that a layer keeps; None: it computes a new one."""
        if self._fired[list(self._clocked.network.layers).index(coord)]:
            return None
        return np.asarray(self._before[out_key(coord, 1)], np.float64)

    def graph(self, coord: Coord) -> RowGraph:
        """Return the numbers of one layer."""
        if coord not in self._graphs:
            self._graphs[coord] = self._build(coord)
        return self._graphs[coord]

    def _build(self, coord: Coord) -> RowGraph:
        network, wire = self._clocked.network, self._clocked.wires[coord]
        row = network.reads[coord][1:]
        reads = [self._read(source, row) for source in wire.inputs]
        skip = [] if wire.skip is None else [self._read(wire.skip, row)]
        total = reads[0][1] if len(reads) == 1 else np.sum([of for _, of in reads], 0)
        work = GraphBuilder(EXPLAINED)
        x = work.input("x", (ROWS, *row), "int32" if total.dtype.kind == "i" else "float32")

        def param(name: str, shape: tuple[int, ...]) -> int:
            return work.stored_tensor(network.resolve(f"{coord}/{name}"), shape)

        inputs, arrays = [x], [total]
        if wire.identity:
            y = work.reshape(x, (ROWS, *row))
        elif skip:
            inputs.append(work.input("skip", (ROWS, *row)))
            arrays.append(skip[0][1])
            y = work.add(*inputs)
        else:
            y = Scope(work=work, param=param, path=str(coord), resumes=True).emit(network.layers[coord], x)
        graph = prepare_graph(work.finish([y]), 1)
        values = evaluate(graph, [positions_from(0, 1) if i in graph.derived else arrays.pop(0) for i in graph.inputs],
                             buffers_of(graph, self._params, self._before, 0))  # fmt: skip
        fed = [i for i in graph.inputs if i not in graph.derived]
        origins = {fed[0]: reads[0][0]} if fed else {}
        sums = {fed[0]: tuple(reads)} if fed and len(reads) > 1 else {}
        origins |= {fed[1]: skip[0][0]} if skip else {}
        return RowGraph(graph=graph, values=values, outputs={str(coord): graph.outputs[0]}, origins=origins, sums=sums)

    def _read(self, source: Source, row: tuple[int, ...]) -> tuple[Origin, Array]:
        """Return a source of a layer, and its value, ``[1, …]``."""
        clocked, before = self._clocked, self._before
        if source.coord is None:
            name = source.port
            held = before.get(port_key(name))
            value = self._new_rows.get(name, held)
            port = clocked.network.ports[name]
            return Origin("input", name), np.zeros((1, *port.shape)) if value is None else np.asarray(value)
        delay = max(1, source.delay)
        key = f"read/{source.coord}" if source.side == "input" else out_key(source.coord, delay)
        return Origin("layer", str(source.coord), delay), np.asarray(before[key])
