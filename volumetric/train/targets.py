"""Learning by targets on any device: an update is one graph, in which every layer follows a target of its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.graph import GraphDevice
from volumetric.graph.stacks import Stacks
from volumetric.network import Network
from volumetric.runtime.graph.inverses import Inverse, last_steps, plan_inverses, refuse_opaque
from volumetric.runtime.graph.targets import TargetRule, inverse_graph, target_graph, taught
from volumetric.train.by_output import Tally
from volumetric.train.data import Batch
from volumetric.train.device import DeviceLearner
from volumetric.train.learner import LayerTarget, LearnerOptions, StepReport
from volumetric.train.modes import TargetPropagation
from volumetric.train.pseudo_inverses import PseudoInverses
from volumetric.train.ready import Ready, sharing
from volumetric.weights import Params


class TargetLearner(DeviceLearner):
    """Trains by targets on a `GraphDevice`. What inverses learn is kept beside the masters, as ``inverse/<where>/…``.

    Raises
    ------
    UnsupportedError
        A target cannot cross one of the layers; the message names it.
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        assert isinstance(options.mode, TargetPropagation)
        self._mode: TargetPropagation = options.mode
        for name in ("ticks_per_row", "delay", "every", "timing", "window"):
            if getattr(options.mode, name) != getattr(TargetPropagation(), name):
                raise SpecError(f"target propagation: {name} is of clocked networks", hint="leave it out")
        super().__init__(network, params, options, device)
        self._solved = PseudoInverses(self._inverses.values(), network, self._store, self._mode.pinv_damping)
        self._steps = taught(self._plan, self._shapes)

    def _stacked(self) -> Stacks:
        """Return that nothing lies as one: each layer learns by itself."""
        return Stacks()

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update by one batch; a fault leaves every weight as it was."""
        if len(batches) != 1:
            raise SpecError("a target is of one batch: accumulate must be 1")
        [ready], scale = sharing(self._losses, [self._ready(batches[0])])
        if len(ready.posed.counts) < len(self._losses.of):
            [lacking, *_] = [name for name in self._losses.of if name not in ready.posed.counts]
            raise ShapeError(
                f"a batch has no targets of output {lacking!r}, and mode 'target' learns all outputs at once",
                hint="give targets of every output that has a loss, with a mask of zeros; or train by backprop",
            )
        self._observe([ready])
        if self._updates % self._mode.pinv_every == 0:
            self._solved.refresh()
        at_once = self._mode.inverse_steps == 1
        arrays = [*ready.arrays, *self._spread(learning=at_once)]
        rule, names = self._targets(learning=at_once), ready.posed.counts
        program = self._program(("targets", ready.of), lambda: target_graph(ready.of, self._weights, rule))
        knobs = self._knobs(rate, scale, self._updates + 1)
        draws = ready.of.draws or len(arrays) > len(ready.arrays)
        key = [self._key(self._updates, 0)] if draws else []
        found = self._values(program, [*key, *arrays, knobs])
        (norm, good, *told), tally = found[len(names) :], ready.posed.tally(found[: len(names)])
        layers = tuple(
            LayerTarget(where=step.where, kind=step.op, budget=budget, gap=gap)
            for step, budget, gap in zip(self._steps, told[::2], told[1::2], strict=True)
        )
        if good and not at_once:
            self._teach_inverses(ready, rate)
        report = self._conclude(batches, tally, norm, good=bool(good), rate=rate)
        return report if report.fault is not None else dataclasses.replace(report, layers=layers)

    def _teach_inverses(self, ready: Ready, rate: float) -> None:
        """Update the inverses alone, several times."""
        spread = self._spread(learning=True)
        if not spread:
            return
        rule = self._targets(learning=True)
        program = self._program(("inverses", ready.of), lambda: inverse_graph(ready.of, self._weights, rule))
        for turn in range(self._mode.inverse_steps):
            knobs = self._knobs(rate, 1.0, self._updates * self._mode.inverse_steps + turn + 1)
            program.run([self._key(self._updates, turn), *ready.arrays[: len(ready.of.inputs)], *spread, knobs])

    def _fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        """Name what was not finite first."""
        if not np.isfinite(tally.total):
            return self._pass_fault(self._ready(batches[0]), tally)
        return "a target, or what is learned from it"

    @cached_property
    def _inverses(self) -> Mapping[str, Inverse]:
        mode = self._mode
        if mode.method == "gradient":
            for step in self._plan.steps:
                if step.op == "discrete":
                    refuse_opaque(step.attrs["spec"], step.where)
            return {}
        tail, last = last_steps(self._plan)
        derived = [step.where for step in (*tail, *(last if mode.top == "hidden" else ()))]
        return plan_inverses(self._plan, mode.inverse, derived=derived)

    def _extra_masters(self) -> dict[str, Array]:
        return first_inverses(self._inverses.values(), self._options.seed)

    def _targets(self, *, learning: bool) -> TargetRule:
        mode = self._mode
        return TargetRule(
            update=self._rule(self._losses.of),
            method=mode.method,
            scale=mode.gradient_scale,
            growth=mode.growth,
            clamp=mode.clamp,
            gate=mode.gate,
            top=mode.top,
            inverses=self._inverses,
            learns_inverses=learning,
            inverse_rate=mode.inverse_share(self._options.optimiser.lr),
        )

    def _spread(self, *, learning: bool) -> list[Array]:
        """Return the noise around what inverses learn, if any do."""
        if not learning or not any(inverse.layer for inverse in self._inverses.values()):
            return []
        return [np.array([self._mode.noise * self._mode.noise_decay**self._updates], np.float32)]

    def _learned(self) -> dict[str, Array]:
        return super()._learned() | self._solved.values


def first_inverses(inverses: Iterable[Inverse], seed: int) -> dict[str, Array]:
    """Return what inverses learn as it is at first: orthogonal times ½, without bias."""
    shapes = {key: shape for inverse in inverses for key, shape in inverse.shapes().items()}
    return {
        key: _orthogonal(key, shape, seed) if len(shape) > 1 else np.zeros(shape, np.float32)
        for key, shape in shapes.items()
    }


def _orthogonal(key: str, shape: Shape, seed: int) -> Array:
    """Return ½ of a random matrix with orthogonal rows or columns, whichever are fewer."""
    stream = np.random.SeedSequence(seed, spawn_key=tuple(key.encode()))
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = np.random.Generator(np.random.Philox(stream)).standard_normal((max(rows, columns), min(rows, columns)))
    q = np.linalg.qr(drawn)[0]
    return (0.5 * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)
