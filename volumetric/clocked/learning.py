"""Windows of ticks that are learned from: forward, loss, backward through all ticks, and update, as one program.

What streams keep lies in buffers of the store, under a name for each use, and goes on from window to window as
constants. Weights of layers that are one bucket are read as one tensor. Most lie so in the store, as do their slots, so
that an update takes as many operations for hundreds of layers as for one; the others are put together in the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar

import numpy as np

from volumetric.base._typing import Shape
from volumetric.clocked.program import at_tick, read_states, write_states
from volumetric.clocked.window import Machine, Window
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.objectives import Objective, emit_objectives, emit_seeds, emit_targets
from volumetric.graph.ops import Graph
from volumetric.graph.stacks import Stack, Stacks
from volumetric.run.graph.training import KNOBS, EmitWeights, GetWeight, UpdateRule, master_gradients, write_update


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """A window.

    Attributes
    ----------
    count : ticks
    given : inputs that have rows
    rows : at which ticks rows come in
    read : name of an output, and after which ticks it is handed out
    fresh : whether streams begin with it; if not, they go on from what is kept
    resets : whether streams begin anew within it
    """

    count: int
    given: tuple[str, ...]
    rows: tuple[int, ...]
    read: tuple[tuple[str, tuple[int, ...]], ...]
    fresh: bool
    resets: bool


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of a machine.

    Attributes
    ----------
    name : under which what they keep is kept
    stacks : weights that lie in the store as one
    """

    machine: Machine
    name: str
    stacks: Stacks = field(default_factory=Stacks)

    def place(self, key: str) -> str:
        """Name of the buffer of a state."""
        return f"{self.name}/{self.machine.batch}/{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPass:
    """A window with what is asked of it.

    Attributes
    ----------
    objectives : the losses
    checkpoint : ticks from one state that an update remembers to the next, between which all is computed once more on
        the way back; 0: all is remembered
    shared : whether losses have shares in what is learned from, see `emit_seeds`
    """

    streams: Streams
    ticks: Ticks
    objectives: tuple[Objective, ...] = ()
    checkpoint: int = 0
    shared: bool = False
    draws: ClassVar[bool] = False

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from others of the same machine."""
        return self.streams.name, self.streams.machine.batch, self.ticks, tuple(of.key for of in self.objectives)


def ticks_graph(of: TickPass, weights: EmitWeights) -> Graph:
    """Return a window that learns nothing.

    Inputs: rows of each input ``[rows, streams, …]``, if any come in; resets ``[ticks, streams]``, if there are any;
    then for each of n losses targets [, weights]. Outputs: with losses the sums of their terms [n], and what was read
    of each of their outputs, ``[streams, ticks, …]``.
    """
    work = GraphBuilder(flush=True)
    run, read = _emit(work, of.streams, of.ticks, weights(work))
    outputs: list[int] = []
    if of.objectives:
        loss_terms = emit_objectives(work, of.objectives, read, [emit_targets(work, one) for one in of.objectives])
        outputs = [loss_terms.totals, *(y for y, _ in loss_terms.slopes)]
    write_states(work, run.state, run.stored, of.streams.place)
    return work.finish(outputs)


def learning_graph(of: TickPass, weights: EmitWeights, rule: UpdateRule) -> Graph:
    """Return a window with its update; nothing is written where a number would not be finite.

    Inputs: as `ticks_graph`; the shares if it is `shared`; the knobs. Output [n + 2]: sums of the terms, norm of the
    gradients, 1 if it was written.
    """
    work, count = GraphBuilder(flush=True), of.ticks.count
    param = weights(work)
    parts = Parts(work, param, stacking(work, param, of.streams.stacks), of.checkpoint or count)
    run, read = _emit(work, of.streams, of.ticks, param, parts)
    loss_terms = emit_objectives(work, of.objectives, read, [emit_targets(work, one) for one in of.objectives])
    seeds = emit_seeds(work, loss_terms.slopes, shared=of.shared)
    if count > parts.apart:
        seeds = parts.back(run, seeds)
    gradients = master_gradients(work, rule, seeds)
    norm, good = write_update(work, rule, gradients, {}, work.input("knobs", (KNOBS,)), loss_terms.totals)
    write_states(work, run.state, run.stored, of.streams.place, good)
    return work.finish([work.concat([loss_terms.totals, norm, good], 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A window as its ticks are emitted.

    Attributes
    ----------
    rows, marks : what comes in
    stored, state : what streams stored when it began, and their newest
    """

    ticks: Ticks
    rows: dict[str, int]
    marks: int | None
    stored: dict[str, int]
    state: dict[str, int]

    def tick(self, window: Window, t: int) -> dict[str, int]:
        """Emit tick `t`, with what comes in there; return the outputs."""
        work, coming = window.work, self.ticks.rows
        new_rows = {name: at_tick(work, x, coming.index(t)) for name, x in self.rows.items()} if t in coming else {}
        return window.tick(new_rows, None if self.marks is None else at_tick(work, self.marks, t))


def begin_window(work: GraphBuilder, streams: Streams, ticks: Ticks) -> Run:
    """Add the inputs of a window."""
    machine = streams.machine
    batch, ports = machine.batch, machine.clocked.network.ports
    rows = {n: work.input(n, (len(ticks.rows), batch, *ports[n].shape), ports[n].dtype) for n in ticks.given}
    marks = work.input("resets", (ticks.count, batch)) if ticks.resets else None
    stored = {} if ticks.fresh else read_states(work, machine, streams.place)
    return Run(ticks=ticks, rows=rows, marks=marks, stored=stored, state=dict(stored) or _fresh(work, machine))


def _emit(
    work: GraphBuilder, streams: Streams, ticks: Ticks, param: GetWeight, parts: Parts | None = None
) -> tuple[Run, dict[str, int]]:
    """Emit a window; return it, and what was read of outputs, ``[streams, ticks, …]``."""
    run = begin_window(work, streams, ticks)
    if parts is None:
        window = Window(work, streams.machine, run.state, param, stacking(work, param, streams.stacks))
        outputs = [run.tick(window, t) for t in range(ticks.count)]
    else:
        outputs = parts.forward(run, streams.machine)

    series: dict[str, int] = {}
    for name, at in ticks.read:
        rows = [work.reshape(y, (1, *work.shape(y))) for y in (outputs[t][name] for t in at)]
        whole = work.concat(rows, 0)  # the gradient of each tick is then a part of one that nobody has to copy
        series[name] = work.permute(whole, (1, 0, *range(2, len(work.shape(whole)))))
    return run, series


class Parts:
    """A window in parts, of which all but the last are computed once more when gradients come back to them.

    Sums of gradients go on from part to part, so that the same numbers are added in the same order as in one piece.

    Parameters
    ----------
    apart : ticks of a part
    """

    def __init__(
        self, work: GraphBuilder, param: GetWeight, stack: Callable[[Sequence[str], Shape], int], apart: int
    ) -> None:
        self.apart = apart
        self.before: list[dict[str, int]] = []
        """What streams kept when each part began."""
        self._work, self._param, self._stack = work, param, stack
        self._leaves: dict[int, None] = {}
        self._outputs: list[dict[str, int]] = []
        self._first: list[int] = []
        self._window: Window | None = None

    def forward(self, run: Run, machine: Machine) -> list[dict[str, int]]:
        """Emit all ticks; return the outputs after each."""
        window = self._window = Window(self._work, machine, run.state, self._leaf, self._stacked)
        for t in range(run.ticks.count):
            if t % self.apart == 0:
                self.before.append(dict(run.state))
                self._first.append(len(self._work.nodes))
            self._outputs.append(run.tick(window, t))
        return self._outputs

    def _leaf(self, key: str, shape: Shape) -> int:
        leaf = self._param(key, shape)
        self._leaves[leaf] = None
        return leaf

    def _stacked(self, keys: Sequence[str], shape: Shape) -> int:
        leaf = self._stack(keys, shape)
        self._leaves[leaf] = None
        return leaf

    def back(self, run: Run, seeds: Mapping[int, int]) -> dict[int, int]:
        """Emit the way back through all ticks; return the gradients of weights as ticks read them."""
        work, count = self._work, run.ticks.count
        assert self._window is not None
        rows = {y for outputs in self._outputs for y in outputs.values()}
        slopes = differentiate(work, seeds, rows, since=self._first[-1])
        sums: dict[int, int] = {}
        later: dict[int, int] = {}
        after = dict(run.state)
        for n in reversed(range(len(self._first))):
            ticks = range(n * self.apart, min((n + 1) * self.apart, count))
            state, outputs, first = after, {t: self._outputs[t] for t in ticks}, self._first[n]
            if later or n + 1 < len(self._first):
                first, state = len(work.nodes), dict(self.before[n])
                again, window = replace(run, state=state), self._window.beside(state)
                outputs = {t: again.tick(window, t) for t in ticks}
            arriving: dict[int, int] = dict(sums)
            for key, end in after.items():
                if end in later and state[key] not in arriving:
                    arriving[state[key]] = later[end]
            for t in ticks:
                for name, y in outputs[t].items():
                    slope = slopes.get(self._outputs[t][name])
                    if slope is not None and y not in arriving:
                        arriving[y] = slope
            starts = [i for i in dict.fromkeys(self.before[n].values()) if work.tensors[i].dtype == "float32"]
            gradients = differentiate(work, arriving, [*self._leaves, *starts], since=first)
            sums = {leaf: gradients[leaf] for leaf in self._leaves if leaf in gradients}
            later = {start: gradients[start] for start in starts if start in gradients}
            after = self.before[n]
        return sums


def _fresh(work: GraphBuilder, machine: Machine) -> dict[str, int]:
    states: dict[str, int] = {}
    for key, buffer in machine.buffers.items():
        shape = buffer.shape(machine.batch)
        if buffer.dtype == "int32":
            states[key] = work.constant(np.zeros(shape, np.int32), "start")
        else:
            states[key] = work.broadcast(work.constant(np.full((1,) * len(shape), buffer.start), "start"), shape)
    return states


def stacking(
    work: GraphBuilder, param: GetWeight, stacks: Stacks | None = None
) -> Callable[[Sequence[str], Shape], int]:
    """Return what gives equal parameters as one; gradients of those put together are slices of that of the whole."""
    lying = stacks or Stacks()

    def stack(keys: Sequence[str], shape: Shape) -> int:
        parts: list[int] = []
        for stacked, run in groupby(lying.runs(keys), lambda one: isinstance(one, Stack)):
            if stacked:
                parts += [param(one.key, one.shape) for one in run if isinstance(one, Stack)]
                continue
            rows = [work.reshape(param(str(key), shape[::-1]), (1, *shape[::-1])) for key in run]
            whole = work.concat(rows, 0)
            parts.append(whole if len(shape) == 1 else work.permute(whole, (0, 2, 1)))
        return work.concat(parts, 0)

    return stack
