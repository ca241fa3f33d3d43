"""Regions' own losses in training, by their recipes, and the random masks and noise for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.layers.emit_scope import Scope, linear
from volumetric.program.layer.attention import head_ops
from volumetric.program.layer.carriers import add_noise, layer_norm, predict_filter, select_flagged
from volumetric.program.layer.program_facts import Facts, Place
from volumetric.program.layer.recipes import (
    HIDDEN,
    LEAST,
    SHARPNESS,
    diffusing_regions,
    hiding_regions,
    recipe_of,
    stream_at,
)
from volumetric.program.layer.settle import RegionStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepValues:
    """Values of a step.

    Attributes
    ----------
    whole : canvas before the step, without hidden positions and without the noise of training
    before : canvas that edges read
    brought : canvas after the dispatch
    after : canvas after the step
    written : ``[B, positions, 1]`` of 0 and 1
    errors : errors of regions, ``[B, N, d]``
    hidden : region → mask of hidden positions, ``[B, N, 1]`` of 0 and 1
    """

    whole: int
    before: int
    brought: int
    after: int
    written: int
    errors: Mapping[int, int]
    hidden: Mapping[int, int]


def mask_regions(regions: RegionStep, canvas: int, hidden: Mapping[int, int]) -> int:
    """Emit the canvas with hidden positions, ``[B, N, 1]``, replaced by the learned vector of their region."""
    work, new = regions.work, list[tuple[Place, int]]()
    for number, where in hidden.items():
        place = regions.facts.places[number]
        x, vector = regions.region_values(canvas, place), regions.region_params(place)["mask"]
        spread = work.broadcast(work.reshape(vector, (1, 1, work.shape(vector)[0])), work.shape(x))
        new.append((place, select_flagged(work, where, spread, x)))
    return regions.place_values(canvas, new)


def emit_penalty(regions: RegionStep, step: StepValues, before: Mapping[str, int]) -> int | None:
    """Emit the sum of all losses of a step, ``[B, 1]``, and update the states of losses; None without losses.

    Parameters
    ----------
    regions : regions after the step; states of losses are replaced
    before : states before the step
    """
    work, total = regions.work, list[int]()
    for place in regions.facts.places:
        losses = recipe_of(place)
        if not losses:
            continue
        of = _Losses(regions, place, regions.region_params(place), step, before)
        terms = [work.affine(loss, weight) for name, weight in losses.items() if (loss := of.emit(name)) is not None]
        if terms:
            flag, loss = regions.fires.get(place.index), work.add(*terms)
            total.append(loss if flag is None else work.binary("mul_nonzero", loss, flag))
    return work.add(*total) if total else None


@dataclass(frozen=True, slots=True)
class _Losses:
    """Losses of a region, each ``[B, 1]``."""

    regions: RegionStep
    place: Place
    p: Mapping[str, int]
    step: StepValues
    before: Mapping[str, int]

    def emit(self, name: str) -> int | None:
        """Emit a loss by name, ``[B, 1]``; None if no position of the region is hidden."""
        work, place, step = self.regions.work, self.place, self.step
        if name == "next_step":
            return self._next_step()
        if name == "write_utility":
            z, there = self._written_rows()
            return self._masked_mean(work.unary(linear(work, self.p, ("memory.write.",), z), "sigmoid"), there)
        if name == "retrieval_accuracy":
            return self._retrieval()
        if name == "masked_prediction":
            where = step.hidden.get(place.index)
            if where is None:
                return None
            aim = self._stop_gradient(self.regions.region_values(step.whole, place))
            far = work.unary(work.binary("sub", self.regions.region_values(step.after, place), aim), "square")
            return self._masked_mean(work.reduce(far, "mean", (2,)), where)
        error, x = step.errors[place.index], self.regions.region_values(step.before, place)
        if name == "sparsity":
            return self._mean(work.unary(error, "abs"))
        expected = predict_filter(work, self.p, x) if place.carrier == "filter" else x
        if name == "predictive_consistency":
            aim = self._stop_gradient(self.regions.region_values(step.after, place))
            return self._mean(work.unary(work.binary("sub", expected, aim), "square"))
        spread = work.unary(linear(work, self.p, ("calibration.",), expected), "softplus")
        spread = work.affine(spread, 1.0, LEAST)
        each = work.add(work.binary("div", work.unary(error, "square"), spread), work.unary(spread, "log"))
        there = self.regions.region_values(step.written, place)
        return self._mean(work.binary("mul_nonzero", work.affine(each, 0.5), there))

    def _next_step(self) -> int:
        work, name, states = self.regions.work, self.place.name, self.regions.states
        last, begun = self.before[f"{name}.seen"], self.before[f"{name}.begun"]
        x = self.regions.region_values(self.step.whole, self.place)
        prediction = linear(
            work, self.p, ("next.up.",), layer_norm(work, self.p, "next.norm.", last), activation="gelu"
        )
        prediction = linear(work, self.p, ("next.down.",), prediction)
        far = self._mean(work.unary(work.binary("sub", prediction, self._stop_gradient(x)), "square"))
        flag = self.regions.fires.get(self.place.index)
        batch = work.shape(x)[0]
        wide = None if flag is None else work.reshape(flag, (batch, 1, 1))
        states[f"{name}.seen"] = select_flagged(work, wide, x, last)
        ones = work.broadcast(work.constant(np.ones((1, 1)), "one"), (batch, 1))
        states[f"{name}.begun"] = ones if flag is None else work.binary("max", begun, flag)
        return work.binary("mul_nonzero", far, begun)

    def _retrieval(self) -> int:
        work, name, states = self.regions.work, self.place.name, self.regions.states
        z, there = self._written_rows()
        batch, count, d = work.shape(z)
        learned = self.p["memory.keys"]
        keys = work.add(work.reshape(learned, (1, *work.shape(learned))), states[f"{name}.keys"])
        queries = work.affine(linear(work, self.p, ("memory.q.",), z), d**-0.5)
        read = work.gemm(head_ops.softmax(work, work.gemm(queries, keys, trans_b=True)), states[f"{name}.values"])
        wrote, stored = linear(work, self.p, ("memory.v.",), z), self.before[f"{name}.values"]
        among = work.concat((wrote, stored), 1)
        logits = work.gemm(head_ops.direction(work, read), head_ops.direction(work, among), trans_b=True)
        logits = work.affine(logits, 1 / SHARPNESS)
        slots = work.shape(stored)[1]
        candidates = work.permute(there, (0, 2, 1))
        candidates = work.concat(
            (candidates, work.broadcast(work.constant(np.ones((1, 1, 1)), "one"), (batch, 1, slots))), 2
        )
        far = work.affine(work.affine(candidates, -1.0, 1.0), -1e9)
        logits = work.add(work.binary("mul_nonzero", logits, candidates), far)
        # Cosines over the temperature do not overflow exp, and a memory always has at least one candidate.
        total = work.unary(work.reduce(work.unary(logits, "exp"), "sum", (2,)), "log")
        diagonal = work.constant(np.eye(count, count + slots)[None], "diagonal")
        right = work.reduce(work.binary("mul", logits, diagonal), "sum", (2,))
        return self._masked_mean(work.binary("sub", total, right), there)

    def _written_rows(self) -> tuple[int, int]:
        """Emit rows that were written, with zeros for the others, and their mask, ``[B, N, 1]``."""
        work = self.regions.work
        there = self.regions.region_values(self.step.written, self.place)
        return work.binary("mul_nonzero", self.regions.region_values(self.step.brought, self.place), there), there

    def _mean(self, x: int) -> int:
        work = self.regions.work
        return work.reshape(work.reduce(x, "mean", (1, 2)), (work.shape(x)[0], 1))

    def _masked_mean(self, x: int, where: int) -> int:
        """Emit the mean of ``[B, N, 1]`` over positions with flag 1; 0 if there are none."""
        work = self.regions.work
        total = work.reduce(work.binary("mul_nonzero", x, where), "sum", (1,))
        count = work.binary("max", work.reduce(where, "sum", (1,)), work.scalar(1.0))
        return work.reshape(work.binary("div", total, count), (work.shape(x)[0], 1))

    def _stop_gradient(self, x: int) -> int:
        """Emit the same values without a gradient."""
        work = self.regions.work
        same = work.emit("unary", (x,), name="affine", alpha=1.0, beta=0.0)[0]
        work.detached.add(same)
        return same


def hidden_in(scope: Scope, facts: Facts, batch: int, length: int) -> dict[int, int]:
    """Emit the mask of positions that training hides: region → ``[T, B, N, 1]`` of 0 and 1."""
    work, training, hidden = scope.work, scope.training, dict[int, int]()
    for place in hiding_regions(facts) if training is not None else ():
        assert training is not None
        count, stream = len(place.positions), stream_of(f"{scope.path}/{place.name}")
        whole = work.broadcast(work.constant(np.ones((1, 1, 1)), "ones"), (training.first + batch, length, count))
        stay = work.emit("dropout", (whole, _key(scope)), p=HIDDEN, stream=stream)[0]
        stay = work.part(stay, 0, training.first, training.first + batch)
        gone = work.permute(work.binary("greater", work.scalar(0.5), stay), (1, 0, 2))
        hidden[place.index] = work.reshape(gone, (length, batch, count, 1))
    return hidden


def noise_in(scope: Scope, facts: Facts, batch: int, length: int) -> dict[int, int]:
    """Emit the noise on diffusive regions: region → ε ``[T, B, N, d]``."""
    work, training, noise = scope.work, scope.training, dict[int, int]()
    for place in diffusing_regions(facts) if training is not None else ():
        assert training is not None
        count, d = len(place.positions), facts.program.canvas.width
        first, stream = training.first * length * count * d, stream_at(scope.path, place)
        nothing = work.zeros((batch, length, count, d))
        drawn = work.emit("normal", (nothing, _key(scope)), stream=stream, first=first)[0]
        noise[place.index] = work.permute(drawn, (1, 0, 2, 3))
    return noise


def diffuse_regions(
    regions: RegionStep, canvas: int, noise: Mapping[int, int], levels: Mapping[int, tuple[int, int]]
) -> int:
    """Emit the canvas with noise ``[B, N, d]`` on regions that fire, each by its level before the step."""
    work, new = regions.work, list[tuple[Place, int]]()
    for number, of in noise.items():
        place = regions.facts.places[number]
        x, flag = regions.region_values(canvas, place), regions.fires.get(number)
        y = add_noise(work, x, levels[number][0], of)
        where = None if flag is None else work.reshape(flag, (work.shape(flag)[0], 1, 1))
        new.append((place, select_flagged(work, where, y, x)))
    return regions.place_values(canvas, new)


def _key(scope: Scope) -> int:
    if scope.training is None or scope.training.noise is None:
        raise SpecError(f"program at {scope.path} needs the key of a pass")
    return scope.training.noise
