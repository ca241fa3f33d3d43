"""Graph of a program: one step as the body of a scan over rows.

Inputs and outputs are matrix products over all rows, before and after the scan. Parameters of edges that are computed
together are stacked once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope, no_stack, start_state
from volumetric.layers.repeat_body import repeat
from volumetric.program.layer.carriers import layer_norm, select_flagged
from volumetric.program.layer.dispatch_plan import DispatchPlan, plan_of, stacks_of
from volumetric.program.layer.edge_dispatch import Guard, Weights, dispatch, weights_of
from volumetric.program.layer.edge_tasks import gate_of, tasks_of
from volumetric.program.layer.emit_clocks import stack_flags, truths_of
from volumetric.program.layer.penalties import (
    StepValues,
    diffuse_regions,
    emit_penalty,
    hidden_in,
    mask_regions,
    noise_in,
)
from volumetric.program.layer.ports import In, Level, Signal
from volumetric.program.layer.program_facts import Facts, Place
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.program_params import codes_of, read_width
from volumetric.program.layer.settle import RegionStep
from volumetric.program.layer.timing import ALWAYS, CANVAS, Timing, all_states, timing_of
from volumetric.program.layer.watch_outputs import emit_watched, watched_rows


def emit_program(scope: Scope, spec: Program, x: int) -> int:
    """Emit the rows of a program of regions."""
    work, facts = scope.work, spec.facts
    *lead, _ = work.shape(x)
    wide = spec.output_shape(work.shape(x))[-1]
    batch, length, _ = work.shape(scope.as_sequences(x))
    if not length or not batch:
        y = work.zeros((*lead, wide))
        for param in scope.params(spec).values():  # so that their gradients are zeros, not None
            flat = work.reshape(param, (prod(work.shape(param)),))
            y = work.add(y, work.reduce(flat, "sum", (0,)))
        return y
    if batch < 0:
        return _one_by_one(scope, spec, x)
    rows = work.permute(scope.as_sequences(x), (1, 0, 2))
    timing = timing_of(facts)
    # If the number of operations dominates the cost, edges that read constants stay with the others.
    plan = plan_of(facts, timing.columns, separate=not work.parted, folded=not work.parted and scope.training is None)
    joined = {} if scope.stack is no_stack else scope.stacked_params(stacks_of(plan))
    p = scope.params(spec, but={name for names in joined for name in names})
    stacks = weights_of(work, plan, p, joined, learns=scope.training is not None)
    inside = {name: p[name] for name in _read_inside(facts, p)}
    inside |= {f"stack {n} {name}": i for n, of in enumerate(stacks) for name, i in of.items()}
    inside |= {f"code {name}": _code(work, facts, p, facts.place(port.region)) for name, port in _ins(facts).items()}
    port_rows = [_affine(work, p, f"ports.{name}.", _columns(work, rows, facts.inputs[name])) for name in _ins(facts)]
    keep = scope.keep_mask(x)
    xs = [rows, *port_rows]
    xs += [] if keep is None else [work.reshape(work.permute(keep, (1, 0)), (length, batch, 1))]
    hidden, noise = hidden_in(scope, facts, batch, length), noise_in(scope, facts, batch, length)
    xs += (*hidden.values(), *noise.values())
    begun = {name: start_state(scope, x, name, shape) for name, shape in all_states(facts).items()}

    penalised: list[int] = []

    def body(
        inner: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
    ) -> tuple[list[int], list[int]]:
        own = dict(zip(inside, constants, strict=True))
        state = dict(zip(begun, states, strict=True))
        count = len(_ins(facts))
        row = _ProgramRow(
            inner, plan, timing, own, state, xs[0], dict(zip(_ins(facts), xs[1 : count + 1], strict=True))
        )
        drawn = xs[len(xs) - len(hidden) - len(noise) :]
        row.hidden = dict(zip(hidden, drawn[: len(hidden)], strict=True))
        row.noise = dict(zip(noise, drawn[len(hidden) :], strict=True))
        row.learns = scope.training is not None
        row.skips_idle = not (written and work.parted)
        row.watched = spec.watched
        outputs = row.run(None if keep is None else xs[count + 1])
        lost = [] if row.penalty is None else [row.penalty]
        penalised.extend(lost)
        return [*outputs, *lost], [row.state[name] for name in begun]

    written = scope.training is not None
    outputs, ends = repeat(work, body, xs, [*inside.values()], [*begun.values()], written=written)
    if scope.keeps_state(x):
        for name, end in zip(begun, ends, strict=True):
            scope.keep_state(name, end)
    if penalised and scope.training is not None:
        scope.training.penalties.append(work.reshape(work.reduce(outputs.pop(), "sum", (0, 1, 2)), (1,)))
    out: list[int] = []
    for (name, port), pool in zip(facts.program.outputs.items(), outputs, strict=False):
        flat = work.reshape(pool, (length, batch, read_width(facts, port)))
        normed = layer_norm(work, {k: p[f"ports.{name}.{k}"] for k in ("norm.weight", "norm.bias")}, "norm.", flat)
        out.append(_affine(work, p, f"ports.{name}.", normed))
    if spec.watched:
        out.append(watched_rows(work, facts, timing, plan.columns, outputs[len(out) :]))
    y = work.concat(out, 2)
    return work.reshape(work.permute(y, (1, 0, 2)), (*lead, wide))


def _one_by_one(scope: Scope, spec: Program, x: int) -> int:
    """Emit an unknown number of samples, each an independent sequence, one after the other."""
    work, p = scope.work, scope.params(spec)
    *lead, length, columns = work.shape(x)

    def body(
        inner: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
    ) -> tuple[list[int], list[int]]:
        own = dict(zip(p, constants, strict=True))
        alone = Scope(work=inner, param=lambda name, shape: own[name], path=scope.path)
        return [emit_program(alone, spec, inner.reshape(xs[0], (1, length, columns)))], []

    samples = work.reshape(x, (prod(lead), length, columns))
    [y], _ = work.scan(body, [samples], [*p.values()], [])
    return work.reshape(y, (*lead, length, spec.output_shape(work.shape(x))[-1]))


def _ins(facts: Facts) -> dict[str, In]:
    return {name: port for name, port in facts.program.inputs.items() if isinstance(port, In)}


def _columns(work: GraphBuilder, rows: int, of: slice) -> int:
    return work.part(rows, len(work.shape(rows)) - 1, of.start, of.stop)


def _affine(work: GraphBuilder, p: Mapping[str, int], name: str, x: int) -> int:
    """Emit ``x Wᵀ + b`` of ``[T, B, in]``."""
    length, batch, width = work.shape(x)
    weight = p[name + "weight"]
    wide = work.shape(weight)[0]
    y = work.gemm(
        work.reshape(x, (1, length * batch, width)),
        work.reshape(weight, (1, wide, width)),
        p[name + "bias"],
        trans_b=True,
    )
    return work.reshape(y, (length, batch, wide))


def _code(work: GraphBuilder, facts: Facts, p: Mapping[str, int], place: Place) -> int:
    """Emit the codes of the positions of a region, ``[1, n, d]``."""
    fixed = work.constant(facts.codes[place.positions][None], "codes")
    return work.add(fixed, *(p[name] for name in codes_of(place)))


def _read_inside(facts: Facts, p: Mapping[str, int]) -> list[str]:
    """Return the parameters that a step reads unstacked: those of regions, and gates."""
    gates = [gate_of(task) for task in tasks_of(facts) if task.wire.write == "gate"]
    return [name for name in p if name.startswith("regions.")] + gates


@dataclass(slots=True)
class _ProgramRow:
    """Emitter of one row.

    Attributes
    ----------
    fixed : values that are constant over rows
    state : state before the row, then after it
    x : ``[B, columns]``
    port_rows : input → its projected row, ``[B, d]``
    hidden : region → mask of positions that training hides, ``[B, N, 1]`` of 0 and 1
    noise : region → noise ε that training adds to its content, ``[B, N, d]``
    learns : whether this is training
    skips_idle : whether edges that fire in no stream can be skipped
    penalty : sum of the regions' own losses, ``[B, 1]``, if any
    watched : whether the activity is returned after the outputs
    lives : which columns of edges fired in each step
    """

    work: GraphBuilder
    plan: DispatchPlan
    timing: Timing
    fixed: dict[str, int]
    state: dict[str, int]
    x: int
    port_rows: dict[str, int]
    hidden: dict[int, int] = field(default_factory=dict)
    noise: dict[int, int] = field(default_factory=dict)
    learns: bool = False
    skips_idle: bool = False
    penalty: int | None = None
    watched: bool = False
    lives: list[int | None] = field(default_factory=list)

    def run(self, keep: int | None) -> list[int]:
        """Emit the row; return the values that outputs read."""
        work, facts, state = self.work, self.plan.facts, self.state
        if keep is not None:
            for name, of in state.items():
                flag = work.reshape(keep, (work.shape(of)[0], *(1,) * (len(work.shape(of)) - 1)))
                state[name] = work.binary("mul_nonzero", of, flag)
        signals = {name: of for name, of in facts.inputs.items() if isinstance(facts.program.ports[name], Signal)}
        signal_columns = {name: _columns(work, self.x, of) for name, of in signals.items()}
        truths = truths_of(work, facts, self.timing, signal_columns, state)
        fires = {n: truths[of] for n, of in enumerate(self.timing.regions) if of != ALWAYS}
        canvas = self._write_inputs(fires)
        past = {name: of for name, of in state.items() if name.endswith(".past")}
        behind = past
        for again in range(1 + max(self.timing.inner)):
            state |= past
            canvas = self._step(canvas, self._step_flags(fires, again), truths, again)
            if not again:
                behind = {name: state[name] for name in past}
        state |= behind
        regions = self._region_step(fires)
        regions.count_step()
        state[CANVAS] = canvas
        outputs: list[int] = []
        for port in facts.program.outputs.values():
            place = facts.place(port.region)
            rows = state[f"{place.name}.values"] if place.through == "memory" else regions.region_values(canvas, place)
            batch, count, d = work.shape(rows)
            flat = port.pool == "flatten"
            outputs.append(work.reshape(rows, (batch, count * d)) if flat else work.reduce(rows, "mean", (1,)))
        return outputs + emit_watched(regions, truths, self.lives, canvas) if self.watched else outputs

    def _step_flags(self, fires: Mapping[int, int], again: int) -> dict[int, int]:
        """Return region → whether it computes in one of several steps; missing regions always do."""
        flags: dict[int, int] = {}
        for n, steps in enumerate(self.timing.inner):
            if steps < again:
                flags[n] = self._constant_flag(0.0)
            elif n in fires:
                flags[n] = fires[n]
        return flags

    def _constant_flag(self, value: float) -> int:
        batch = self.work.shape(self.x)[0]
        return self.work.broadcast(self.work.constant(np.full((1, 1), value), "flag"), (batch, 1))

    def _write_inputs(self, fires: Mapping[int, int]) -> int:
        """Emit the canvas with the writes of inputs, and with constants (in one pass with the first input)."""
        work, facts, canvas = self.work, self.plan.facts, self.state[CANVAS]
        batch = work.shape(canvas)[0]
        regions = self._region_step(fires)
        there = regions.constants(batch)
        for name, port in _ins(facts).items():
            place = facts.place(port.region)
            now, d = regions.region_values(canvas, place), facts.program.canvas.width
            value = work.add(self.fixed[f"code {name}"], work.reshape(self.port_rows[name], (batch, 1, d)))
            value = work.add(now, value) if port.write == "add" else value
            flag = fires.get(place.index)
            if flag is not None:
                value = select_flagged(work, work.reshape(flag, (batch, 1, 1)), value, now)
            canvas, there = regions.place_values(canvas, [*there, (place, value)]), []
        return regions.place_values(canvas, there)

    def _region_step(self, fires: Mapping[int, int]) -> RegionStep:
        return RegionStep(
            work=self.work,
            facts=self.plan.facts,
            p=self.fixed,
            states=self.state,
            fires=fires,
            predicate=self._region_predicate(fires),
            learns=self.learns,
        )

    def _region_predicate(self, fires: Mapping[int, int]) -> Callable[..., AbstractContextManager[None]]:
        """Return a context in which carriers and meters are skipped for regions that fire in no stream."""
        if not fires or not self.skips_idle:
            return lambda *regions: nullcontext()
        work, columns = self.work, {region: column for column, region in enumerate(fires)}
        some = work.reshape(work.reduce(stack_flags(work, [*fires.values()]), "max", (1,)), (1, len(columns)))

        def guard(*regions: int) -> AbstractContextManager[None]:
            own = [columns.get(region, -1) for region in regions]
            in_order = own[0] >= 0 and own == list(range(own[0], own[0] + len(own)))
            return work.predicated(some, own[0], len(own), zeros=self.learns) if in_order else nullcontext()

        return guard

    def _step(self, canvas: int, fires: Mapping[int, int], truths: Sequence[int], again: int) -> int:
        """Emit one step of the row; return the canvas after it, ``[B, positions, d]``."""
        facts, regions = self.plan.facts, self._region_step(fires)
        whole, before, levels = canvas, dict(self.state), self._levels(again)
        canvas = diffuse_regions(regions, canvas, self.noise, levels) if self.noise and not again else canvas
        canvas = mask_regions(regions, canvas, self.hidden) if self.hidden and not again else canvas
        read_rows = regions.rows(canvas)
        live = self._edge_flags(fires, truths, regions.read_flags())
        self.lives.append(live)
        dispatched = dispatch(
            self.work,
            self.plan,
            self._stacks(),
            self.fixed,
            canvas,
            read_rows,
            live,
            self._edge_predicate(live),
            learns=self.learns,
        )
        after, errors = regions.settle(canvas, dispatched, levels)
        if facts.program.parity:
            columns = {} if live is None else {n: c for n, c in enumerate(self.plan.columns) if c != ALWAYS}
            on = {n: self.work.part(live, 1, c, c + 1) for n, c in columns.items() if live is not None}
            regions.measure_read(dispatched.results, canvas, on)
        else:
            regions.measure(errors)
        if self.learns and not again:
            step_values = StepValues(
                whole=whole,
                before=canvas,
                brought=dispatched.canvas,
                after=after,
                written=dispatched.written,
                errors=errors,
                hidden=self.hidden,
            )
            self.penalty = emit_penalty(regions, step_values, before)
        return after

    def _edge_predicate(self, live: int | None) -> Guard | None:
        """Return a context in which edges that fire in no stream are skipped."""
        if live is None or not self.skips_idle:
            return None
        work, groups = self.work, self.plan.groups
        some = work.reduce(live, "max", (0,))
        alike = [set(group.columns) for group in groups]
        if all(len(columns) == 1 for columns in alike):
            return lambda number: work.predicated(some, groups[number].columns[0], zeros=self.learns)
        known = work.shape(some)[1]
        table, ids = work.permute(some, (1, 0)), [column for group in groups for column in group.columns]
        if ALWAYS in ids:
            table = work.concat((table, work.constant(np.ones((1, 1)), "always")), 0)
            ids = [known if column == ALWAYS else column for column in ids]
        flag_rows = work.gather_rows(table, work.constant(np.array(ids, np.int32), "columns"))
        each = work.reshape(flag_rows, (1, len(ids)))
        firsts = [0, *accumulate(len(group.columns) for group in groups)]
        return lambda number: work.predicated(each, firsts[number], len(groups[number].columns))

    def _stacks(self) -> Weights:
        """Return the parameters of the edges of each group."""
        stacks: list[dict[str, int]] = [{} for _ in self.plan.groups]
        for name, of in self.fixed.items():
            if name.startswith("stack "):
                _, number, own = name.split(" ", 2)
                stacks[int(number)][own] = of
        return stacks

    def _edge_flags(self, fires: Mapping[int, int], truths: Sequence[int], present: Mapping[int, int]) -> int | None:
        """Emit which edges fire, ``[B, columns]``; None: all, always."""
        work, factors = self.work, list[list[int]]()
        by_column = {column: wire for wire, column in zip(self.plan.facts.wires, self.plan.columns, strict=True)}
        for column in range(len(self.timing.kinds)):
            wire = by_column[column]
            of, when = fires.get(wire.writes), self.timing.edges[wire.index]
            flags = [of, None if when == ALWAYS else truths[when], present.get(wire.index)]
            factors.append([flag for flag in flags if flag is not None])
        if not factors:
            return None
        one, most = self._constant_flag(1.0), max(1, *map(len, factors))
        sides = [stack_flags(work, [of[n] if n < len(of) else one for of in factors]) for n in range(most)]
        live = sides[0]
        for side in sides[1:]:
            live = work.binary("mul", live, side)
        return work.permute(live, (1, 0))

    def _levels(self, again: int) -> dict[int, tuple[int, int]]:
        """Return the noise levels of diffusive regions before and after one of several steps, ``[B, 1, 1]``."""
        work, facts = self.work, self.plan.facts
        batch, levels = work.shape(self.x)[0], dict[int, tuple[int, int]]()
        ports = {port.region: name for name, port in facts.program.inputs.items() if isinstance(port, Level)}
        for place in facts.places:
            if place.carrier != "diffusive":
                continue
            name, steps = ports.get(place.name), self.timing.inner[place.index] + 1
            begun = self._constant_flag(0.0) if name is None else _columns(work, self.x, facts.inputs[name])
            before, after = (work.affine(begun, 1 - n / steps, n / steps) for n in (again, again + 1))
            levels[place.index] = work.reshape(before, (batch, 1, 1)), work.reshape(after, (batch, 1, 1))
        return levels
