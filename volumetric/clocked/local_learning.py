"""Target propagation at one tick: targets that layers receive, targets that they send, and weight updates.

The update of a layer from its target is in `volumetric.run.graph.target_graphs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from volumetric.base._typing import Shape
from volumetric.clocked.machine import Clocked
from volumetric.clocked.target_schedule import TargetLayer, learns, step_of
from volumetric.clocked.target_state import OnlineMachine
from volumetric.clocked.tick_learning import weight_stacker
from volumetric.clocked.window import Moment, TickWindow
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.layers.discrete import discrete_value
from volumetric.layers.emit_scope import Scope
from volumetric.network.grid import Coord
from volumetric.run.graph.inverses import EXACT, emit_inverse
from volumetric.run.graph.target_rule import TargetRule, budget_of, draw_noise, gap_of, pace_of
from volumetric.run.graph.weight_reader import EmitWeights
from volumetric.run.graph.weight_updates import UpdatePace


def taught_layers(clocked: Clocked, masters: Mapping[str, Shape]) -> list[Coord]:
    """Return the layers that are reported: those with at least one trained weight."""
    network = clocked.network
    return [
        coord
        for coord, spec in network.layers.items()
        if learns(clocked, coord) and any(network.resolve(f"{coord}/{p.name}") in masters for p in spec.params())
    ]


@dataclass(frozen=True, slots=True)
class InverseNoise:
    """Noise of an update of the inverses: a key for each step, and the size of the noise, [1]."""

    keys: Sequence[int]
    size: int


@dataclass(kw_only=True)
class LocalLearning:
    """Targets and updates of all layers at one tick.

    Attributes
    ----------
    window : window that emitted the tick, with the states before and after it
    weights : returns the weights after the nodes emitted so far
    since : first node of the tick: gradients go no further back
    """

    work: GraphBuilder
    machine: OnlineMachine
    window: TickWindow
    rule: TargetRule
    weights: EmitWeights
    since: int

    def __post_init__(self) -> None:
        """Emit, for each bucket, the output that its targets refer to."""
        self.before: dict[str, int] = self.window.before
        self.now: list[Moment] = [self.window.moments[i] for i in range(len(self.machine.buckets))]
        self.target_moments: dict[int, Moment] = {
            i: self._target_moment(i) for i in range(len(self.now)) if self.machine.stops(i)
        }
        self.shifts: dict[int, int] = {}
        """Bucket → target minus output, ``[n, streams, …]``."""

    def _target_moment(self, i: int) -> Moment:
        """Return a bucket's input and output at the tick that its targets refer to, and extend its trail."""
        work, machine, state, moment = self.work, self.machine, self.window.state, self.now[i]
        lags = [stop.lag for stop in (machine.schedule.get(c) for c in machine.buckets[i].coords) if stop is not None]
        if not any(lags):
            return moment
        size, batch = machine.buckets[i].size, machine.batch
        fires = work.constant(np.ones((1, 1)), "ones") if moment.fires is None else moment.fires
        now = {"x": moment.x, "fires": work.broadcast(fires, (size, batch))}
        now |= {name: self.before[name] for name in machine.layer_states(i)}
        then = {name: self._trail_rows(i, name, tensor) for name, tensor in now.items()}
        for name, tensor in now.items():
            for k in range(machine.lag(i), 1, -1):
                state[f"trail/{i}/{k}/{name}"] = self.before[f"trail/{i}/{k - 1}/{name}"]
            state[f"trail/{i}/1/{name}"] = tensor
        bucket = machine.buckets[i]
        if bucket.identity or bucket.skips is not None:
            return Moment(then["x"], then["x"], then["fires"])
        again = self.window.sharing_weights({name: then[name] for name in machine.layer_states(i)})
        return Moment(then["x"], again.apply(i, then["x"]), then["fires"])

    def _trail_rows(self, i: int, name: str, now: int) -> int:
        """Return rows of a bucket's trail, each taken `lag` ticks ago."""
        work, machine, bucket = self.work, self.machine, self.machine.buckets[i]
        where = name.partition("/")[0]
        members = [machine.named[where][1]] if where in machine.named else list(range(bucket.size))
        each = work.shape(now)[0] // len(members)  # rows of one layer
        parts: list[int] = []
        for row, n in enumerate(members):
            stop = machine.schedule.get(bucket.coords[n])
            lag = 0 if stop is None else stop.lag
            plane = self.before[f"trail/{i}/{lag}/{name}"] if lag else now
            parts.append(work.part(plane, 0, row * each, (row + 1) * each))
        return work.concat(parts, 0)

    def receive_targets(self, slopes: Mapping[Coord, int]) -> None:
        """Emit the targets of layers; `slopes` are the gradients of each stream's losses by output."""
        work, machine = self.work, self.machine
        loss_slopes = {
            coord: self._loss_target(coord, stop, slopes) for coord, stop in machine.schedule.items() if stop.loss_share
        }
        for i, meant in self.target_moments.items():
            bucket = machine.buckets[i]
            shape = (bucket.size, machine.batch, *bucket.shape)
            parts = [] if (request := self._requested_shift(i, shape)) is None else [request]
            for n, stop in machine.stops(i).items():
                slope = loss_slopes.get(bucket.coords[n])
                if slope is not None:
                    own = work.affine(slope, -stop.kappa * stop.loss_share * machine.batch)
                    rest = (0,) * (len(shape) - 1)
                    parts.append(work.pad(own, (n, *rest), (bucket.size - 1 - n, *rest)))
            if not parts:
                continue
            shift = self.rule.bound(work, work.add(*parts))
            if meant.fires is not None:
                fires = work.broadcast(meant.fires, shape[:2])
                shift = work.binary("mul_nonzero", shift, work.reshape(fires, (*shape[:2], *(1,) * len(bucket.shape))))
            self.shifts[i] = shift

    def _loss_target(self, coord: Coord, stop: TargetLayer, slopes: Mapping[Coord, int]) -> int | None:
        """Return the loss gradient of an output, ``[1, streams, …]``, delayed by its lag; None: no gradient."""
        work, state = self.work, self.window.state
        slope = slopes.get(coord)
        if slope is not None:
            slope = work.reshape(slope, (1, *work.shape(slope)))
        if not stop.lag:
            return slope
        for k in range(stop.lag, 1, -1):
            state[f"told/{coord}/{k}"] = self.before[f"told/{coord}/{k - 1}"]
        first = f"told/{coord}/1"
        state[first] = work.zeros(work.shape(self.before[first])) if slope is None else slope
        return self.before[f"told/{coord}/{stop.lag}"]

    def _requested_shift(self, i: int, shape: Shape) -> int | None:
        """Return the requests to a bucket's layers: the planes of requests times a matrix of shares."""
        work, machine = self.work, self.machine
        columns: dict[tuple[int, int, int], int] = {}
        shares: list[tuple[int, tuple[int, int, int], float]] = []
        for n, stop in machine.stops(i).items():
            for ask in stop.requests:
                bucket, row = machine.places[ask.reader]
                columns.setdefault((bucket, ask.delay + 1, row), len(columns))
                shares.append((n, (bucket, ask.delay + 1, row), ask.share))
        if not shares:
            return None
        parts = [work.part(self.before[f"ask/{b}/{k}"], 0, row, row + 1) for b, k, row in columns]
        matrix = np.zeros((1, shape[0], len(columns)))
        for n, column, share in shares:
            matrix[0, n, columns[column]] += share
        table = work.reshape(work.concat(parts, 0), (1, len(columns), prod(shape[1:])))
        return work.reshape(work.gemm(work.constant(matrix, "shares"), table), shape)

    def request_inputs(self) -> None:
        """Emit the requests of layers to their sources: how their inputs should change."""
        work, state = self.work, self.window.state
        for i, meant in self.target_moments.items():
            if f"ask/{i}/1" not in state:
                continue
            k = 2
            while f"ask/{i}/{k}" in state:
                state[f"ask/{i}/{k}"] = self.before[f"ask/{i}/{k - 1}"]
                k += 1
            request = work.zeros(work.shape(meant.x)) if i not in self.shifts else self._layer_requests(i, meant)
            state[f"ask/{i}/1"] = request

    def _layer_requests(self, i: int, meant: Moment) -> int:
        """Emit the requests of a bucket's layers, ``[n, streams, …]``."""
        work, stops, shift = self.work, self.machine.stops(i), self.shifts[i]
        bucket = self.machine.buckets[i]
        kinds = {stop.crossing for stop in stops.values()}
        if len(stops) == bucket.size and kinds == {"same"}:
            return work.reshape(shift, work.shape(meant.x))
        back: int | None = None
        if "derived" in kinds:
            weights = (work.stored_tensor(key, size) for key, size in self.rule.update.masters.items())
            stops_at = {*self.before.values(), *weights}  # states before this tick, and weights
            gradients = differentiate(work, {meant.y: shift}, [meant.x], stops=stops_at, since=self.since)
            back = gradients.get(meant.x)
            if back is not None and len(stops) == bucket.size and kinds == {"derived"}:
                return back
        parts: list[int] = []
        for n in range(bucket.size):
            stop = stops.get(n)
            if stop is None or stop.crossing == "none" or (stop.crossing == "derived" and back is None):
                parts.append(work.zeros((1, *work.shape(meant.x)[1:])))
            elif stop.crossing == "derived" and back is not None:
                parts.append(work.part(back, 0, n, n + 1))
            else:
                parts.append(self._layer_request(i, n, stop, meant))
        return work.concat(parts, 0)

    def _layer_request(self, i: int, n: int, stop: TargetLayer, meant: Moment) -> int:
        """Emit the request of one layer, by an inverse or a formula, ``[1, streams, …]``."""
        work, batch = self.work, self.machine.batch
        step = step_of(self.machine.clocked, self.machine.buckets[i].coords[n])
        x, y, shift = (self._row(plane, n) for plane in (meant.x, meant.y, self.shifts[i]))
        if stop.crossing == "same":
            request = shift
        elif stop.crossing == "exact":
            request = EXACT[step.op](self._base, step, x, y, shift)
        else:
            assert stop.inverse is not None
            both = self._visible_output(stop, work.concat([work.add(y, shift), y], 0))
            back = emit_inverse(self._base, stop.inverse, step, both)
            request = work.binary("sub", work.part(back, 0, 0, batch), work.part(back, 0, batch, 2 * batch))
        return work.reshape(request, (1, *work.shape(x)))

    def _row(self, plane: int, n: int) -> int:
        return self.work.reshape(self.work.part(plane, 0, n, n + 1), self.work.shape(plane)[1:])

    @property
    def _base(self) -> Scope:
        return Scope(work=self.work, param=self.window.param, path="", sequences=self.machine.batch)

    def _visible_output(self, stop: TargetLayer, y: int) -> int:
        """Return an output as other layers read it."""
        return y if stop.discrete_output is None else discrete_value(self.work, stop.discrete_output, y)

    def learn(self, knobs: int, totals: int | None, noise: InverseNoise | None) -> list[int]:
        """Emit the updates; return the norm, 1 if they are written, and the budgets and gaps of layers, each [1]."""
        work, machine, rule = self.work, self.machine, self.rule
        stored = {key: work.stored_tensor(key, shape) for key, shape in rule.update.masters.items()}
        seeds, budgets, gaps = dict[int, int](), dict[Coord, int](), dict[Coord, int]()
        for i, shift in self.shifts.items():
            bucket, y = machine.buckets[i], self.target_moments[i].y
            sizes = np.zeros((bucket.size, *(1,) * (len(work.shape(y)) - 1)))
            for n, stop in machine.stops(i).items():
                sizes[n] = -1 / (machine.batch * stop.kappa)
            seeds[y] = work.binary("mul", shift, work.constant(sizes, "sizes"))
            budget, gap = budget_of(work, y, work.add(y, shift)), gap_of(work, shift)
            for n in machine.stops(i):
                budgets[bucket.coords[n]] = work.part(budget, 0, n, n + 1)
                gaps[bucket.coords[n]] = work.part(gap, 0, n, n + 1)
        stops = {*self.before.values(), *(m.x for m in self.target_moments.values())} - seeds.keys()
        slopes = differentiate(work, seeds, stored.values(), stops=stops, since=self.since) if seeds else {}
        gradients = {key: slopes[tensor] for key, tensor in stored.items() if tensor in slopes}
        paces = self._paces(gradients, budgets)
        at_once = noise is not None and rule.course.inverse_steps == 1
        inverses = self._inverse_gradients(noise.keys[0], noise.size) if noise is not None and at_once else {}
        report = [work.scalar(0.0), work.scalar(1.0)]
        if gradients or inverses:
            report = rule.write(work, knobs, inverses, totals, gradients, paces)
        if noise is not None and not at_once:
            for key in noise.keys:
                written = rule.write(work, knobs, self._inverse_gradients(key, noise.size))
                report = [report[0], work.binary("mul", report[1], written[1])]
        half, zero = work.scalar(0.5), work.scalar(0.0)
        for coord in taught_layers(machine.clocked, rule.update.masters):
            report += [budgets.get(coord, half), gaps.get(coord, zero)]
        return report

    def _paces(self, gradients: Mapping[str, int], budgets: Mapping[Coord, int]) -> dict[str, UpdatePace]:
        """Return the pace of each weight, from the mean budget of the layers that use it."""
        network, of = self.machine.clocked.network, dict[str, list[int]]()
        for coord, budget in budgets.items():
            for p in network.layers[coord].params():
                of.setdefault(network.resolve(f"{coord}/{p.name}"), []).append(budget)
        return {key: pace_of(self.work, of[key], self.rule.course.gate) for key in gradients}

    def _inverse_gradients(self, key: int, noise: int) -> dict[str, int]:
        """Emit the gradients of the inverses: to reconstruct a layer's input, near its input of this tick."""
        work, machine, param = self.work, self.machine, self.weights(self.work)
        parts, seeds, ends = dict[str, int](), dict[int, int](), set[int]()
        for i in self.target_moments:
            inverses = {
                n: stop.inverse
                for n, stop in machine.stops(i).items()
                if stop.inverse is not None and stop.inverse.layer is not None
            }
            if not inverses:
                continue
            x = self.now[i].x
            moved = work.add(x, draw_noise(work, work.shape(x), f"bucket {i}", key, noise))
            states = {name: self.before[name] for name in machine.layer_states(i)}
            y = TickWindow(work, machine, states, param, weight_stacker(work, param)).apply(i, moved)
            for n, inverse in inverses.items():
                end = self._visible_output(machine.stops(i)[n], self._row(y, n))
                ends.add(end)
                step = step_of(machine.clocked, machine.buckets[i].coords[n])
                back = emit_inverse(self._base, inverse, step, end)
                parts |= {name: work.stored_tensor(name, shape) for name, shape in inverse.shapes().items()}
                far = work.binary("sub", back, self._row(moved, n))
                seeds[back] = work.affine(far, 1 / machine.batch)
        slopes = differentiate(work, seeds, parts.values(), stops=ends, since=self.since)
        return {name: slopes[tensor] for name, tensor in parts.items() if tensor in slopes}
