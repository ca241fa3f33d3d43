"""Training on windows of ticks: forward, loss, backward through all ticks, and update, as one program.

States of streams are buffers of the tensor store. They carry over from window to window, and no gradient flows through
them. The weights of a bucket's layers are read as one tensor. Most are stored stacked, together with their optimizer
slots, so that an update takes as many operations for hundreds of layers as for one. The graph concatenates the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar

import numpy as np

from volumetric.base._typing import Shape
from volumetric.clocked.window import Machine, TickWindow
from volumetric.clocked.window_program import at_tick, read_states, write_states
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.objectives import Objective, emit_objectives, emit_seeds, emit_targets
from volumetric.graph.ops import Graph
from volumetric.graph.parameter_stacks import ParameterStack, ParameterStacks
from volumetric.run.graph.training_graphs import master_gradients
from volumetric.run.graph.weight_reader import EmitWeights, GetWeight
from volumetric.run.graph.weight_updates import KNOBS, UpdateRule, write_update


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTicks:
    """A window of ticks.

    Attributes
    ----------
    count : number of ticks
    fed_inputs : inputs that receive rows
    rows : ticks at which rows arrive
    read : name of an output, and the ticks after which it is returned
    fresh : whether streams start with this window; if false, they continue from the stored states
    resets : whether streams can be reset within the window
    """

    count: int
    fed_inputs: tuple[str, ...]
    rows: tuple[int, ...]
    read: tuple[tuple[str, tuple[int, ...]], ...]
    fresh: bool
    resets: bool


@dataclass(frozen=True, slots=True)
class MachineStreams:
    """Streams of a machine.

    Attributes
    ----------
    name : prefix of the names of state buffers
    stacks : weights that are stored stacked
    """

    machine: Machine
    name: str
    stacks: ParameterStacks = field(default_factory=ParameterStacks)

    def place(self, key: str) -> str:
        """Return the name of a state's buffer."""
        return f"{self.name}/{self.machine.batch}/{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TickPass:
    """A window of ticks and its losses.

    Attributes
    ----------
    objectives : losses
    checkpoint : ticks between gradient checkpoints; the backward pass recomputes the ticks in between; 0: no
        checkpoints, all values are stored
    shared : whether the gradients of losses are weighted by shares, see `emit_seeds`
    """

    streams: MachineStreams
    ticks: WindowTicks
    objectives: tuple[Objective, ...] = ()
    checkpoint: int = 0
    shared: bool = False
    draws: ClassVar[bool] = False

    @property
    def key(self) -> tuple[object, ...]:
        """Key of this pass among those of the same machine."""
        return self.streams.name, self.streams.machine.batch, self.ticks, tuple(of.key for of in self.objectives)


def ticks_graph(of: TickPass, weights: EmitWeights) -> Graph:
    """Return the graph of a window without an update.

    Inputs: rows of each input ``[rows, streams, …]``, if any arrive; resets ``[ticks, streams]``, if any; then for each
    of n losses targets [, weights]. Outputs: the sums of the losses' terms [n], if there are losses, then the values
    of each output that is read, ``[streams, ticks, …]``.
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
    """Return the graph of a window with its update; nothing is written if a number is not finite.

    Inputs: those of `ticks_graph`; the shares if `shared`; the knobs. Output [n + 2]: sums of the terms, norm of the
    gradients, 1 if the update was written.
    """
    work, count = GraphBuilder(flush=True), of.ticks.count
    param = weights(work)
    parts = RecomputedWindow(work, param, weight_stacker(work, param, of.streams.stacks), of.checkpoint or count)
    run, read = _emit(work, of.streams, of.ticks, param, parts)
    loss_terms = emit_objectives(work, of.objectives, read, [emit_targets(work, one) for one in of.objectives])
    seeds = emit_seeds(work, loss_terms.slopes, shared=of.shared)
    if count > parts.part_ticks:
        seeds = parts.backward(run, seeds)
    gradients = master_gradients(work, rule, seeds)
    norm, good = write_update(work, rule, gradients, {}, work.input("knobs", (KNOBS,)), loss_terms.totals)
    write_states(work, run.state, run.stored, of.streams.place, good)
    return work.finish([work.concat([loss_terms.totals, norm, good], 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRun:
    """Values of a window while its ticks are emitted.

    Attributes
    ----------
    rows, marks : rows of inputs, and resets
    stored, state : states at the start of the window, and current ones
    """

    ticks: WindowTicks
    rows: dict[str, int]
    marks: int | None
    stored: dict[str, int]
    state: dict[str, int]

    def tick(self, window: TickWindow, t: int) -> dict[str, int]:
        """Emit tick `t` with the rows that arrive at it; return the outputs."""
        work, coming = window.work, self.ticks.rows
        new_rows = {name: at_tick(work, x, coming.index(t)) for name, x in self.rows.items()} if t in coming else {}
        return window.tick(new_rows, None if self.marks is None else at_tick(work, self.marks, t))


def begin_window(work: GraphBuilder, streams: MachineStreams, ticks: WindowTicks) -> WindowRun:
    """Add the inputs of a window to the graph."""
    machine = streams.machine
    batch, ports = machine.batch, machine.clocked.network.ports
    rows = {n: work.input(n, (len(ticks.rows), batch, *ports[n].shape), ports[n].dtype) for n in ticks.fed_inputs}
    marks = work.input("resets", (ticks.count, batch)) if ticks.resets else None
    stored = {} if ticks.fresh else read_states(work, machine, streams.place)
    return WindowRun(
        ticks=ticks, rows=rows, marks=marks, stored=stored, state=dict(stored) or _fresh_states(work, machine)
    )


def _emit(
    work: GraphBuilder,
    streams: MachineStreams,
    ticks: WindowTicks,
    param: GetWeight,
    parts: RecomputedWindow | None = None,
) -> tuple[WindowRun, dict[str, int]]:
    """Emit a window; return it and the values of its outputs, ``[streams, ticks, …]``."""
    run = begin_window(work, streams, ticks)
    if parts is None:
        window = TickWindow(work, streams.machine, run.state, param, weight_stacker(work, param, streams.stacks))
        outputs = [run.tick(window, t) for t in range(ticks.count)]
    else:
        outputs = parts.forward(run, streams.machine)

    series: dict[str, int] = {}
    for name, at in ticks.read:
        rows = [work.reshape(y, (1, *work.shape(y))) for y in (outputs[t][name] for t in at)]
        whole = work.concat(rows, 0)  # the gradient of each tick is then a view of one tensor, without a copy
        series[name] = work.permute(whole, (1, 0, *range(2, len(work.shape(whole)))))
    return run, series


class RecomputedWindow:
    """A window in parts (gradient checkpointing): the backward pass recomputes all parts but the last.

    Sums of gradients carry over from part to part, so that terms are added in the same order as without parts.

    Parameters
    ----------
    part_ticks : ticks of a part
    """

    def __init__(
        self, work: GraphBuilder, param: GetWeight, stack: Callable[[Sequence[str], Shape], int], part_ticks: int
    ) -> None:
        self.part_ticks = part_ticks
        self.before: list[dict[str, int]] = []
        """States of the streams at the start of each part."""
        self._work, self._param, self._stack = work, param, stack
        self._leaves: dict[int, None] = {}
        self._outputs: list[dict[str, int]] = []
        self._first: list[int] = []
        self._window: TickWindow | None = None

    def forward(self, run: WindowRun, machine: Machine) -> list[dict[str, int]]:
        """Emit all ticks; return the outputs after each."""
        window = self._window = TickWindow(self._work, machine, run.state, self._leaf, self._stack_leaf)
        for t in range(run.ticks.count):
            if t % self.part_ticks == 0:
                self.before.append(dict(run.state))
                self._first.append(len(self._work.nodes))
            self._outputs.append(run.tick(window, t))
        return self._outputs

    def _leaf(self, key: str, shape: Shape) -> int:
        leaf = self._param(key, shape)
        self._leaves[leaf] = None
        return leaf

    def _stack_leaf(self, keys: Sequence[str], shape: Shape) -> int:
        leaf = self._stack(keys, shape)
        self._leaves[leaf] = None
        return leaf

    def backward(self, run: WindowRun, seeds: Mapping[int, int]) -> dict[int, int]:
        """Emit the backward pass through all ticks; return the gradients of the weights that ticks read."""
        work, count = self._work, run.ticks.count
        assert self._window is not None
        rows = {y for outputs in self._outputs for y in outputs.values()}
        slopes = differentiate(work, seeds, rows, since=self._first[-1])
        sums: dict[int, int] = {}
        later: dict[int, int] = {}
        after = dict(run.state)
        for n in reversed(range(len(self._first))):
            ticks = range(n * self.part_ticks, min((n + 1) * self.part_ticks, count))
            state, outputs, first = after, {t: self._outputs[t] for t in ticks}, self._first[n]
            if later or n + 1 < len(self._first):
                first, state = len(work.nodes), dict(self.before[n])
                again, window = replace(run, state=state), self._window.sharing_weights(state)
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


def _fresh_states(work: GraphBuilder, machine: Machine) -> dict[str, int]:
    states: dict[str, int] = {}
    for key, buffer in machine.buffers.items():
        shape = buffer.shape(machine.batch)
        if buffer.dtype == "int32":
            states[key] = work.constant(np.zeros(shape, np.int32), "start")
        else:
            states[key] = work.broadcast(work.constant(np.full((1,) * len(shape), buffer.start), "start"), shape)
    return states


def weight_stacker(
    work: GraphBuilder, param: GetWeight, stacks: ParameterStacks | None = None
) -> Callable[[Sequence[str], Shape], int]:
    """Return a function that returns equal parameters as one tensor; their gradients are slices of its gradient."""
    lying = stacks or ParameterStacks()

    def stack(keys: Sequence[str], shape: Shape) -> int:
        parts: list[int] = []
        for stacked, run in groupby(lying.runs(keys), lambda one: isinstance(one, ParameterStack)):
            if stacked:
                parts += [param(one.key, one.shape) for one in run if isinstance(one, ParameterStack)]
                continue
            rows = [work.reshape(param(str(key), shape[::-1]), (1, *shape[::-1])) for key in run]
            whole = work.concat(rows, 0)
            parts.append(whole if len(shape) == 1 else work.permute(whole, (0, 2, 1)))
        return work.concat(parts, 0)

    return stack
