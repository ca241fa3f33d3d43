"""Runs recorded rows again on the reference device, in float64, up to the row whose numbers are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.clocked.layer_clocks import firing_layers
from volumetric.graph.open_interpreter import positions_from
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.run.device import SequenceRows
from volumetric.run.graph.network_graph import layered_graph
from volumetric.run.lower import looks_ahead, lower
from volumetric.run.streams.row_stream import with_outputs
from volumetric.run.streams.stream_io import check_rows
from volumetric.scope.inspection.explained_ticks import ExplainedTick, TickRows
from volumetric.scope.inspection.row_graph import EXPLAINED, Origin, RowGraph, buffers_of, evaluate, prepare_graph

if TYPE_CHECKING:
    from volumetric.devices.reference_device import ReferenceExecutable
    from volumetric.devices.reference_state import ReferenceState

MOST_WEIGHTS: Final = 30_000_000
"""Maximum number of weights of a network whose numbers are explained: they are decoded to float64."""
_SNAPSHOTS: Final = 8
_AT_ONCE: Final = 1024  # rows of a network that looks ahead
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

    def last_output(self, coord: Coord, t: int) -> Array | None:
        """Return the output that a layer keeps at row `t`, float64; None: it computes a new one."""
        ...


def explained_rows(
    machine: Network | Clocked,
    params: Params,
    rows: Array | Mapping[str, Array],
    *,
    resets: Array | None,
    per_row: int,
    row: int,
) -> ExplainedRows:
    """Return the rows of one sequence, ``[T, …]``, or of sequence `row` of ``[B, T, …]``, or of dicts of these.

    Raises
    ------
    UnsupportedError : the network has too many weights
    ShapeError : rows do not match the network's inputs
    """
    network = machine.network if isinstance(machine, Clocked) else machine
    _check_size(params)
    arrays, count = _checked(network, rows, row)
    marks = np.zeros(count, bool) if resets is None else np.asarray(resets, bool)
    marks = marks[row] if marks.ndim == 2 else marks
    if marks.shape != (count,):
        raise SpecError(f"resets: expected {count} marks, got {list(marks.shape)}")
    if isinstance(machine, Clocked):
        return TickRows(machine, params, arrays, marks, per_row)
    return _NetworkRows(network, params, arrays, marks)


class SeenRows:
    """The last row of a running stream: takes it over without computing, until its numbers are asked for.

    Raises
    ------
    UnsupportedError : the network has too many weights
    """

    def __init__(self, machine: Network | Clocked, params: Params) -> None:
        _check_size(params)
        self._machine, self._params = machine, params
        self._rows = None if isinstance(machine, Clocked) else _NetworkRows(machine, params, {}, np.zeros(0, bool))
        self._row: tuple[int, Mapping[str, Array], Mapping[str, Array]] = (-1, {}, {})
        self._tick: ExplainedTick | None = None
        self._graph: RowGraph | None = None

    def see(self, t: int, before: Mapping[str, Array], rows: Mapping[str, Array]) -> None:
        """Take over a row, see `Inspection.see`."""
        self._row, self._tick, self._graph = (t, before, rows), None, None

    @property
    def count(self) -> int:
        """Number of rows so far."""
        return self._row[0] + 1

    def last_output(self, coord: Coord, t: int) -> Array | None:
        """Return what a layer keeps, see `ExplainedRows`."""
        self._check(t)
        return self._ticked().last_output(coord) if self._rows is None else None

    def graph(self, coord: Coord, t: int) -> RowGraph:
        """Return all numbers of a layer at the last row."""
        self._check(t)
        if self._rows is None:
            return self._ticked().graph(coord)
        if self._graph is None:
            self._graph = self._rows.seen_graph(*self._row)
        return self._graph

    def _ticked(self) -> ExplainedTick:
        if self._tick is None:
            _, before, rows = self._row
            assert isinstance(self._machine, Clocked)
            fired = firing_layers(self._machine, before.__getitem__, rows, np.zeros(1, bool))[:, 0]
            self._tick = ExplainedTick(self._machine, self._params, before, rows, fired)
        return self._tick

    def _check(self, t: int) -> None:
        if t != self._row[0]:
            raise SpecError(f"a running stream has the numbers of its last row {self._row[0]} only, not of row {t}")


def _check_size(params: Params) -> None:
    size = sum(store.size for store in params.values())
    if size > MOST_WEIGHTS:
        raise UnsupportedError(
            f"numbers are explained for networks of up to {MOST_WEIGHTS:,} weights; this one has {size:,}",
            hint="its weights can be looked at nevertheless",
        )


def _checked(network: Network, rows: Array | Mapping[str, Array], row: int) -> tuple[dict[str, Array], int]:
    """Return the rows of one sequence by input, ``[T, …]``, and their number."""
    ports = network.ports
    named = dict(rows) if isinstance(rows, Mapping) else {next(iter(ports)): rows}
    single: dict[str, Array] = {}
    for name, value in named.items():
        x = np.asarray(value)
        width = ports[name].shape if name in ports else (1,)  # a port of the first layer has vectors
        many = x.ndim == 2 + len(width)
        if many and not 0 <= row < len(x):
            raise SpecError(f"there is no sequence {row} among {len(x)}")
        single[name] = x[row : row + 1] if many else x[None]
    inputs, count = check_rows(network, single if isinstance(rows, Mapping) else next(iter(single.values())), 1)
    return {name: value[0] for name, value in inputs.items()}, count


class _NetworkRows:
    """Rows of a network that computes row by row."""

    def __init__(self, network: Network, params: Params, rows: Mapping[str, Array], marks: Array) -> None:
        self._network, self._rows, self._marks = network, rows, marks
        self._coords = list(network.layers)
        plan = lower(with_outputs(network, {f"{_OUTPUT}{i}": coord for i, coord in enumerate(self._coords)}))
        self._whole = any(looks_ahead(plan, step) for step in plan.steps)
        self._plan = plan
        self._open, _ = layered_graph(plan, dialect=EXPLAINED)
        # noise depends on the number of a row in its call
        self._whole |= any(node.op == "gumbel" for node in self._open.nodes)
        self._params = params
        self._snapshots: dict[int, ReferenceState] = {}
        self._last: tuple[int, RowGraph] | None = None

    @cached_property
    def _executable(self) -> ReferenceExecutable:
        from volumetric.devices.reference_device import ReferenceDevice

        return ReferenceDevice(np.float64).compile(self._plan, self._params)

    @property
    def count(self) -> int:
        return len(self._marks)

    def last_output(self, coord: Coord, t: int) -> Array | None:
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
            if self.count > _AT_ONCE:
                raise UnsupportedError(
                    f"rows of this network depend on later ones: up to {_AT_ONCE} are explained, got {self.count}"
                )
            end, first = t + 1 + int(later[0]) if later.size else self.count, begin
        else:
            first, state = t, self._state_before(begin, t)
        rows = {name: self._rows[name][first:end] for name in self._plan.inputs}
        return self._row_graph(rows, t - first, state.values, first - begin)

    def seen_graph(self, t: int, before: Mapping[str, Array], rows: Mapping[str, Array]) -> RowGraph:
        """Return the numbers of a row of a stream with the states `before` it; keys and values count its rows."""
        held = [np.size(before[key]) // prod(of.shape) for key, of in self._plan.states.items()
                if of.kind == "rows" and key in before]  # fmt: skip
        return self._row_graph(rows, 0, before, max(held, default=t))

    def _row_graph(self, rows: Mapping[str, Array], row: int, states: Mapping[str, Array], position: int) -> RowGraph:
        """Return the numbers of the rows of a call, of which `row` is explained."""
        count = len(rows[next(iter(self._plan.inputs))])
        graph = prepare_graph(self._open, count)
        buffers = buffers_of(graph, self._params, states, position)
        left = iter([rows[name] for name in self._plan.inputs])
        inputs = [positions_from(position, count) if i in graph.derived else next(left) for i in graph.inputs]
        values = evaluate(graph, inputs, buffers)
        names = list(self._plan.outputs)
        outputs = {str(coord): graph.outputs[names.index(f"{_OUTPUT}{i}")] for i, coord in enumerate(self._coords)}
        fed = [i for i in graph.inputs if i not in graph.derived]
        origins = {i: Origin("input", name) for i, name in zip(fed, self._plan.inputs, strict=True)}
        for at, i in outputs.items():
            origins.setdefault(i, Origin("layer", at))
        return RowGraph(graph=graph, values=values, outputs=outputs, origins=origins, row=row)

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
