"""Ticks of a clocked network, run again on the reference device in float64: what each layer reads and computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from volumetric.base._typing import ROWS, Array
from volumetric.clocked import Clocked
from volumetric.clocked.layer_clocks import firing_layers
from volumetric.clocked.states import out_key, port_key
from volumetric.graph.build import GraphBuilder
from volumetric.graph.open_interpreter import positions_from
from volumetric.layers.emit_scope import Scope
from volumetric.network import Params
from volumetric.network.grid import Coord
from volumetric.network.wiring import Source
from volumetric.scope.inspection.row_graph import EXPLAINED, Origin, RowGraph, buffers_of, evaluate, prepare_graph

_KEPT: Final = 8  # ticks whose numbers are stored


class TickRows:
    """Ticks of a clocked network."""

    def __init__(self, clocked: Clocked, params: Params, rows: Mapping[str, Array], marks: Array, per_row: int) -> None:
        from volumetric.devices.reference_device import ReferenceDevice

        self._clocked, self._params, self._rows, self._marks, self._per_row = clocked, params, rows, marks, per_row
        self._device = ReferenceDevice(np.float64)
        self._stream, self._at = clocked.stream_on(self._device, params), 0
        self._ticks: dict[int, ExplainedTick] = {}

    @property
    def count(self) -> int:
        """Number of ticks."""
        return len(self._marks) * self._per_row

    def last_output(self, coord: Coord, t: int) -> Array | None:
        """Return what a layer keeps at tick `t`, see `ExplainedRows`."""
        return self._tick(t).last_output(coord)

    def graph(self, coord: Coord, t: int) -> RowGraph:
        """Return all numbers of a layer at tick `t`."""
        return self._tick(t).graph(coord)

    def _tick(self, t: int) -> ExplainedTick:
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
            self._ticks[t] = ExplainedTick(self._clocked, self._params, before, new_rows, fired)
            while len(self._ticks) > _KEPT:
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


class ExplainedTick:
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

    def last_output(self, coord: Coord) -> Array | None:
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
        """Compute a layer's row from what its inputs keep."""
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
