"""Online learning: at each tick, layers of a clocked network learn from targets that travel between them.

After each tick, every layer that received a target updates its weights in place; the next tick uses the new weights.
Targets in transit are states of the streams (`OnlineMachine`), so that memory does not depend on the number of ticks.
`wave` has the paths of targets, `local` the requests and updates of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volumetric.clocked.local_learning import InverseNoise, LocalLearning
from volumetric.clocked.target_state import OnlineMachine
from volumetric.clocked.tick_learning import MachineStreams, WindowTicks, begin_window, weight_stacker
from volumetric.clocked.window import TickWindow
from volumetric.clocked.window_program import at_tick, write_states
from volumetric.graph.build import GraphBuilder
from volumetric.graph.objectives import Objective, emit_objectives
from volumetric.graph.ops import Graph
from volumetric.network.grid import Coord
from volumetric.run.graph.target_rule import TargetRule
from volumetric.run.graph.weight_reader import EmitWeights
from volumetric.run.graph.weight_updates import KNOBS


def online_graph(
    streams: MachineStreams,
    ticks: WindowTicks,
    learning: Sequence[int],
    weights: EmitWeights,
    objectives: Sequence[Objective],
    rule: TargetRule,
) -> Graph:
    """Return the graph of a window whose layers learn after each tick of `learning`.

    Inputs: rows and resets, see `ticks_graph`; for each objective (of one tick) targets [, weights] with a leading
    axis of the ticks at which its output is read, and for each of these ticks a factor on the gradients of its
    terms; the knobs of each tick of `learning`; if inverses are learned, a key for each of their updates, int32
    [n, 2], and the noise of each tick. Output: for each objective the sum of terms of each tick at which it is read;
    then for each tick of `learning` the norm of its gradients, 1 if the update was written, and the budgets and gaps
    of the layers of `taught_steps`.
    """
    work = GraphBuilder(flush=True)
    machine = streams.machine
    assert isinstance(machine, OnlineMachine)
    run = begin_window(work, streams, ticks)
    read = dict(ticks.read)
    losses = {of.name: _OnlineLoss.begin(work, of, len(read[of.name])) for of in objectives}
    knobs = keys = spread = -1
    if learning:
        knobs = work.input("knobs", (len(learning), KNOBS))
    noisy = any(stop.inverse is not None and stop.inverse.layer is not None for stop in machine.schedule.values())
    if learning and noisy:
        keys = work.input("noise", (len(learning) * rule.course.inverse_steps, 2), "int32")
        spread = work.input("spread", (len(learning), 1))
    totals: dict[str, list[int]] = {of.name: [] for of in objectives}
    reports, writes = list[int](), list[int]()
    for t in range(ticks.count):
        since, param = len(work.nodes), weights(work)
        window = TickWindow(work, machine, run.state, param, weight_stacker(work, param))
        outputs = run.tick(window, t)
        sums, slopes = list[int](), dict[Coord, int]()
        for name, of in losses.items():
            if t in read[name]:
                total, slope = of.at(work, read[name].index(t), outputs[name])
                totals[name].append(total)
                sums.append(total)
                coord = machine.clocked.network.taps[name]
                slopes[coord] = work.add(slopes[coord], slope) if coord in slopes else slope
        local = LocalLearning(work=work, machine=machine, window=window, rule=rule, weights=weights, since=since)
        local.receive_targets(slopes)
        local.request_inputs()
        if t in learning:
            n = learning.index(t)
            noise = None
            if noisy:
                turns = range(n * rule.course.inverse_steps, (n + 1) * rule.course.inverse_steps)
                noise = InverseNoise([at_tick(work, keys, turn) for turn in turns], at_tick(work, spread, n))
            report = local.learn(at_tick(work, knobs, n), work.concat(sums, 0) if sums else None, noise)
            reports += report
            writes.append(report[1])
    good = None
    for one in writes:
        good = one if good is None else work.binary("mul", good, one)
    write_states(work, run.state, run.stored, streams.place, good)
    numbers = [*(total for each in totals.values() for total in each), *reports]
    return work.finish([work.concat(numbers, 0)] if numbers else [])


@dataclass(frozen=True, slots=True)
class _OnlineLoss:
    """A loss at the ticks of a window: targets, weights of terms, and factors on gradients."""

    objective: Objective
    inputs: tuple[int, ...]
    scales: int

    @staticmethod
    def begin(work: GraphBuilder, of: Objective, ticks: int) -> _OnlineLoss:
        """Add the inputs of a loss to the graph."""
        inputs = [work.input(f"targets of {of.name}", (ticks, *of.target), of.target_type)]
        if of.weights is not None:
            inputs.append(work.input(f"weights of {of.name}", (ticks, *of.weights)))
        return _OnlineLoss(of, tuple(inputs), work.input(f"scales of {of.name}", (ticks, 1)))

    def at(self, work: GraphBuilder, n: int, y: int) -> tuple[int, int]:
        """Emit the sum of the terms at the n-th of these ticks, [1], and the gradient of `y`."""
        target, *weighing = (at_tick(work, x, n) for x in self.inputs)
        targets = (target, weighing[0] if weighing else None)
        loss_terms = emit_objectives(work, [self.objective], {self.objective.name: y}, [targets])
        [(_, slope)] = loss_terms.slopes
        factor = work.reshape(at_tick(work, self.scales, n), (1,) * len(work.shape(slope)))
        return loss_terms.totals, work.binary("mul", slope, factor)
