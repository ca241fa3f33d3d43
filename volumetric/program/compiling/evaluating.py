"""Content of regions after some rows, or once they have settled: the program's graph, interpreted in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph import Graph, GraphBuilder
from volumetric.graph.interpret import Interpreter
from volumetric.layers.clock import LONGEST
from volumetric.layers.emit_scope import Scope
from volumetric.layers.field_checks import check_whole
from volumetric.network.weight_store import WeightStore
from volumetric.program.layer.emit_program import emit_program
from volumetric.program.layer.ports import width_of
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_layer import Program as ProgramLayer
from volumetric.program.layer.program_params import AGE, all_params
from volumetric.program.layer.settle import RegionStep
from volumetric.program.layer.timing import ALWAYS, CANVAS, CLOCK, all_states, timing_of

MOST_ROWS = 1000
"""Maximum number of rows to wait until a region settles."""
STILL = 1e-9
"""Maximum relative change per row of a settled value, over the largest number there (and 1)."""


@dataclass(frozen=True, eq=False, slots=True)
class RegionRows:
    """Content of regions.

    Attributes
    ----------
    rows : rows of each watched region, as edges read them, float32 ``[rows, d]``
    count : number of input rows before
    """

    rows: tuple[F32Array, ...]
    count: int


class SettlingWatch:
    """A region and its dependencies.

    It has settled when all of them stay unchanged until the counts of its clocks repeat: from then on it repeats
    itself.
    """

    def __init__(self, facts: Facts, region: int, regions: frozenset[int], edges: frozenset[int]) -> None:
        timing, used = timing_of(facts), set[int]()
        used |= {timing.regions[number] for number in regions} | {timing.edges[number] for number in edges}
        starts = np.cumsum([0, *map(len, timing.starts)])
        self.region = region
        self.settled: bool = False
        self._counts = [at for n in sorted(used - {ALWAYS}) for at in range(starts[n], starts[n + 1])]
        self._positions = np.unique(np.concatenate([facts.places[number].positions for number in regions]))
        self._starts = tuple(f"{facts.places[number].name}." for number in regions)
        self._seen = set[bytes]()

    def observe_step(self, before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
        """Compare the states of a program before and after a row."""
        ends = [(of[CANVAS][:, self._positions] for of in (before, after))]
        ends += [(before[name], now) for name, now in after.items() if self._is_mine(name)]
        counts = after[CLOCK][0, self._counts] if self._counts else np.zeros(0)
        age = after[AGE][0] if AGE in after else np.zeros(0)
        now = np.concatenate([counts, age]).tobytes()
        if not all(_is_settled(*end) for end in ends):
            self._seen.clear()
        self.settled = now in self._seen
        self._seen.add(now)

    def _is_mine(self, name: str) -> bool:
        owner, dot, _ = name.rpartition(".")
        return owner + dot in self._starts


def _is_settled(before: Array, after: Array) -> bool:
    most = max(1.0, float(np.abs(after).max(initial=0)))
    return bool(np.abs(after - before).max(initial=0) <= STILL * most)


def evaluate_regions(
    facts: Facts, params: Mapping[str, WeightStore], watches: Sequence[SettlingWatch], rows: Array | None
) -> RegionRows:
    """Run a program from the start of a stream, and return the content of regions after it.

    Parameters
    ----------
    rows : input rows, ``[T, columns]``; None: zeros until all watched regions have settled, at most `MOST_ROWS`
    """
    buffers = {of.name: params[of.name].values().astype(np.float64) for of in all_params(facts)}
    states = {name: np.zeros((1, *shape)) for name, shape in all_states(facts).items()}
    step = Interpreter(_row(facts, tuple(states)), np.float64)
    count, still = MOST_ROWS if rows is None else len(rows), np.zeros((1, columns_of(facts.program)))
    done = 0
    while done < count and (rows is not None or not all(watch.settled for watch in watches)):
        x = still if rows is None else rows[done : done + 1]
        after = dict(zip(states, step.run([x, *states.values()], buffers), strict=True))
        done += 1
        if rows is None:
            for watch in watches:
                watch.observe_step(states, after)
        states = after
    reading = Interpreter(_read_graph(facts, tuple(states), [watch.region for watch in watches]), np.float64)
    outputs = reading.run([*states.values()], buffers)
    with np.errstate(over="ignore"):  # values that are not finite are reported later
        return RegionRows(tuple(of[0].astype(np.float32) for of in outputs), done)


def _row(facts: Facts, names: Sequence[str]) -> Graph:
    """Return the graph of a row of a program: ``[1, columns]`` and states → the states after it."""
    work, spec = GraphBuilder(), ProgramLayer(program=facts.program)
    x = work.input("x", (1, columns_of(facts.program)))
    states = {f"program/{name}": i for name, i in _states(work, facts).items()}
    scope = Scope(work=work, param=work.stored_tensor, path="program", resumes=True, states=states)
    emit_program(scope, spec, x)
    return work.finish([states[f"program/{name}"] for name in names])


def _read_graph(facts: Facts, names: Sequence[str], indices: Sequence[int]) -> Graph:
    """Return the graph of the rows that edges read from regions that do not fire: states → ``[1, rows, d]`` of each."""
    work = GraphBuilder()
    states = _states(work, facts)
    p = {of.name: work.stored_tensor(of.name, of.shape) for of in all_params(facts)}
    never = work.zeros((1, 1))
    fires = {place.index: never for place in facts.places}
    regions = RegionStep(
        work=work, facts=facts, p=p, states=states, fires=fires, predicate=lambda *_: nullcontext(), learns=False
    )
    canvas = regions.place_values(states[CANVAS], regions.constants(1))
    read_rows = regions.rows(canvas)
    rows = (read_rows[n, 0] if (n, 0) in read_rows else regions.region_values(canvas, facts.places[n]) for n in indices)
    return work.finish([*rows])


def _states(work: GraphBuilder, facts: Facts) -> dict[str, int]:
    return {name: work.input(name, (1, *shape)) for name, shape in all_states(facts).items()}


def columns_of(program: Program) -> int:
    """Return the width of an input row."""
    return sum(map(width_of, program.inputs.values()))


def rows_of_run(program: Program, after: int | None, rows: Array | Mapping[str, Array] | None) -> Array | None:
    """Return the input rows for constants, float64 ``[T, columns]``; None: neither `after` nor `rows` is set.

    Raises
    ------
    SpecError : both are set, or the rows do not fit the program
    """
    if after is None and rows is None:
        return None
    if after is not None and rows is not None:
        raise SpecError("compile: after and rows are both set", hint="pass one of them: rows include their count")
    columns = columns_of(program)
    if rows is None:
        check_whole("compile: after", after, most=LONGEST)
        assert after is not None
        return np.broadcast_to(np.zeros(columns), (after, columns))
    array = _of_ports(program, rows) if isinstance(rows, Mapping) else _float_rows(rows)
    if array.ndim != 2 or array.shape[1] != columns or not len(array):
        raise SpecError(
            f"compile: rows must be [T, {columns}], at least one, got {list(array.shape)}",
            hint="pass rows of one stream, or a dict by input, each [T, dim]",
        )
    return array


def _float_rows(rows: object) -> Array:
    try:
        array = np.asarray(rows)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise SpecError("compile: rows must be an array of numbers", hint="[T, columns] of one stream, without gaps")
    return array.astype(np.float64)


def _of_ports(program: Program, rows: Mapping[str, Array]) -> Array:
    from volumetric.run.streams.stream_io import INPUT, inputs_by_port

    port_rows = {name: _float_rows(part)[None] for name, part in rows.items()}
    try:
        inputs = inputs_by_port(program.network(), port_rows, 1)
    except ShapeError as error:
        raise SpecError(f"compile: rows: {error}", hint=error.hint) from None
    if inputs.keys() != {INPUT}:
        known = ", ".join(program.inputs)
        raise SpecError(
            f"compile: rows have the inputs {', '.join(rows) or 'none'}", hint=f"the program's inputs are {known}"
        )
    return inputs[INPUT][0]
