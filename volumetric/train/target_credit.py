"""Target propagation: an update is one graph, in which every layer follows its own target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.run.graph.inverses import Inverse, last_steps, plan_inverses, refuse_opaque
from volumetric.run.graph.target_graphs import inverse_graph, target_graph, taught_steps
from volumetric.run.graph.target_rule import TargetCourse, TargetRule
from volumetric.run.graph.training_graphs import ForwardPass
from volumetric.run.plan import Plan
from volumetric.train.data import Batch
from volumetric.train.learner import LayerTarget, LearnerOptions
from volumetric.train.modes import TargetPropagation
from volumetric.train.output_losses import Tally
from volumetric.train.prepared_batch import PreparedBatch, share_losses
from volumetric.train.pseudo_inverses import PseudoInverses
from volumetric.train.strategies import CreditStrategy, Update
from volumetric.train.trained_arrays import TrainedArrays
from volumetric.train.whole_batches import WholeTime

NOT_FINITE = "a target, or what is learned from it"
"""Name of the fault if all losses are finite."""


class InverseCredit(CreditStrategy):
    """Targets cross layers by inverses, stored with the masters as ``inverse/<where>/…``."""

    def __init__(self, arrays: TrainedArrays, mode: TargetPropagation, inverses: Sequence[Inverse]) -> None:
        self._arrays, self._mode = arrays, mode
        self._noisy = any(inverse.layer for inverse in inverses)
        """Whether some inverses are learned."""
        arrays.train_beside(first_inverses(inverses, arrays.options.seed))
        self._solved = PseudoInverses(inverses, arrays.network, arrays.store, mode.pinv_damping)
        self._rule = TargetRule(course=course_of(arrays.options), update=arrays.rule(arrays.losses.of))

    @property
    def buffers(self) -> dict[str, Array]:
        return self._solved.values

    def _spread(self, update: int) -> Array:
        """Return the deviation of the noise for inverses in an update."""
        return np.array([self._mode.noise * self._mode.noise_decay**update], np.float32)


class TargetCredit(InverseCredit):
    """Target propagation over whole batches.

    Raises
    ------
    UnsupportedError
        A target cannot cross one of the layers; the message names it.
    """

    def __init__(self, arrays: TrainedArrays, time: WholeTime, mode: TargetPropagation) -> None:
        for name in ("ticks_per_row", "delay", "every", "timing", "window"):
            if getattr(mode, name) != getattr(TargetPropagation(), name):
                raise SpecError(f"target propagation: {name} is only for clocked networks", hint="leave it out")
        inverses = _inverses_of(arrays.plan, mode)
        super().__init__(arrays, mode, [*inverses.values()])
        self._time, self._rule = time, replace(self._rule, inverses=inverses)
        self._steps = [(step.where, step.op) for step in taught_steps(arrays.plan, arrays.shapes)]
        self._at_once = mode.inverse_steps == 1
        """Whether one graph updates the inverses and the network."""

    def update(self, batches: Sequence[Batch], rate: float) -> Update:
        if len(batches) != 1:
            raise SpecError("target propagation uses one batch for each update: accumulate must be 1")
        arrays, losses, count = self._arrays, self._arrays.losses, self._arrays.updates
        [ready], scale = share_losses(losses, [self._time.ready(batches[0])])
        of, names = ready.of, ready.posed.counts
        if len(names) < len(losses.of):
            [lacking, *_] = [name for name in losses.of if name not in names]
            raise ShapeError(
                f"a batch has no targets of output {lacking!r}, but mode 'target' needs targets of all "
                "outputs with losses",
                hint="pass targets with a mask of zeros for this output, or use mode 'backprop'",
            )
        self._time.observe([ready])
        if count % self._mode.pinv_every == 0:
            self._solved.refresh()
        noisy = self._noisy and self._at_once
        inputs = [*ready.arrays, *([self._spread(count)] if noisy else []), arrays.knobs(rate, scale)]
        key = [arrays.noise_key(count, 0)] if of.draws or noisy else []
        rule = replace(self._rule, learns_inverses=self._at_once)
        program = arrays.program("targets", of, lambda: target_graph(of, arrays.weights, rule))
        numbers = program.run([*key, *inputs])[0].tolist()
        (norm, good, *layer_numbers), tally = numbers[len(names) :], ready.posed.tally(numbers[: len(names)])
        if good and self._noisy and not self._at_once:
            self._teach_inverses(ready, rate)
        layers = layer_targets(self._steps, layer_numbers)
        return Update(tally=tally, norm=norm, steepest=norm, good=bool(good), layers=layers)

    def _teach_inverses(self, ready: PreparedBatch[ForwardPass], rate: float) -> None:
        """Update only the inverses, several times."""
        arrays, count, turns = self._arrays, self._arrays.updates, self._mode.inverse_steps
        rule = replace(self._rule, learns_inverses=True)
        program = arrays.program("inverses", ready.of, lambda: inverse_graph(ready.of, arrays.weights, rule))
        inputs = [*ready.arrays[: len(ready.of.inputs)], self._spread(count)]
        for turn in range(turns):
            knobs = arrays.knobs(rate, 1.0, count * turns + turn + 1)
            program.run([arrays.noise_key(count, turn), *inputs, knobs])

    def fault(self, batches: Sequence[Batch], rate: float, tally: Tally) -> str:
        if np.isfinite(tally.total):
            return NOT_FINITE
        return self._time.pass_fault(self._time.ready(batches[0]), tally)


def course_of(options: LearnerOptions) -> TargetCourse:
    """Return how targets are computed and followed. Raises `SpecError` if the mode has no targets."""
    mode = options.mode
    if not isinstance(mode, TargetPropagation):
        raise SpecError(f"mode {mode.kind!r} has no targets", hint="mode=TargetPropagation() has")
    return TargetCourse(
        method=mode.method,
        inverse=mode.inverse,
        top=mode.top,
        timing=mode.timing,
        scale=mode.gradient_scale,
        growth=mode.growth,
        clamp=mode.clamp,
        gate=mode.gate,
        inverse_steps=mode.inverse_steps,
        inverse_rate=mode.inverse_share(options.optimiser.lr),
    )


def layer_targets(layers: Iterable[tuple[str, str]], numbers: Sequence[float]) -> tuple[LayerTarget, ...]:
    """Return budget and gap of each layer, from their positions and kinds."""
    pairs = zip(layers, numbers[::2], numbers[1::2], strict=True)
    return tuple(LayerTarget(where=where, kind=kind, budget=budget, gap=gap) for (where, kind), budget, gap in pairs)


def _inverses_of(plan: Plan, mode: TargetPropagation) -> Mapping[str, Inverse]:
    """Return the inverses by which targets cross the steps of a plan."""
    if mode.method == "gradient":
        for step in plan.steps:
            if step.op == "discrete":
                refuse_opaque(step.attrs["spec"], step.where)
        return {}
    tail, last = last_steps(plan)
    derived = [step.where for step in (*tail, *(last if mode.top == "hidden" else ()))]
    return plan_inverses(plan, mode.inverse, derived=derived)


def first_inverses(inverses: Iterable[Inverse], seed: int) -> dict[str, Array]:
    """Return the initial weights of inverses: orthogonal times ½, without bias."""
    shapes = {key: shape for inverse in inverses for key, shape in inverse.shapes().items()}
    return {
        key: _orthogonal(key, shape, seed) if len(shape) > 1 else np.zeros(shape, np.float32)
        for key, shape in shapes.items()
    }


def _orthogonal(key: str, shape: Shape, seed: int) -> Array:
    """Return a random matrix with orthogonal rows or columns, whichever are fewer, times ½."""
    stream = np.random.SeedSequence(seed, spawn_key=tuple(key.encode()))
    rows, columns = shape[0], math.prod(shape[1:])
    drawn = np.random.Generator(np.random.Philox(stream)).standard_normal((max(rows, columns), min(rows, columns)))
    q = np.linalg.qr(drawn)[0]
    return (0.5 * (q if rows >= columns else q.T)).reshape(shape).astype(np.float32)
