"""The update rule of target propagation, for whole batches (`targets`) and for running ticks (`clocked/local`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal

import numpy as np

from volumetric.base._typing import Shape
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.counter_noise import stream_of
from volumetric.run.graph.inverses import Inverse, InverseKind
from volumetric.run.graph.weight_updates import KNOBS, UpdatePace, UpdateRule, write_update

_TINY = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCourse:
    """Settings of target propagation; the fields are those of `TargetPropagation`.

    Attributes
    ----------
    scale, growth : s and ρ
    inverse_rate : learning rate of inverses, as a fraction of the update's rate
    """

    method: Literal["gradient", "difference"]
    inverse: InverseKind
    top: Literal["hidden", "output"]
    timing: Literal["aligned", "present"]
    scale: float
    growth: float
    clamp: float
    gate: float
    inverse_steps: int
    inverse_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRule:
    """The update rule of arrays trained by targets.

    Attributes
    ----------
    update : update rule of the trained arrays, including inverses
    inverses : ``where`` of a step of a plan → its inverse
    learns_inverses : whether the update of a plan also updates these
    """

    course: TargetCourse
    update: UpdateRule
    inverses: Mapping[str, Inverse] = field(default_factory=dict)
    learns_inverses: bool = False

    def bound(self, work: GraphBuilder, shift: int) -> int:
        """Emit the shift to a target, limited to the bound."""
        bound = self.course.clamp
        return work.binary("min", work.binary("max", shift, work.scalar(-bound)), work.scalar(bound))

    def write(
        self,
        work: GraphBuilder,
        knobs: int,
        inverses: Mapping[str, int],
        totals: int | None = None,
        gradients: Mapping[str, int] | None = None,
        paces: Mapping[str, UpdatePace] | None = None,
        buffers: Mapping[str, int] | None = None,
    ) -> list[int]:
        """Emit an update by gradients of layers, with their paces, and of inverses; see `write_update`."""
        rate, _, first, second = work.split(knobs, [1] * KNOBS, 0)
        knobs = work.concat([rate, work.scalar(1.0), first, second], 0)  # the errors are means already
        own = UpdatePace(work.scalar(self.course.inverse_rate), work.scalar(1.0))
        paces = {**(paces or {}), **dict.fromkeys(inverses, own)}
        return write_update(work, self.update, {**(gradients or {}), **inverses}, buffers or {}, knobs, totals, paces)


def draw_noise(work: GraphBuilder, shape: Shape, where: str, key: int, noise: int) -> int:
    """Emit random ±`noise` for each element.

    To second order, an inverse depends only on the mean and the variance of uncorrelated noise.
    """
    ones = work.broadcast(work.constant(np.ones((1,) * len(shape)), "ones"), shape)
    drawn = work.emit("dropout", (ones, key), p=0.5, stream=stream_of(f"{where}/inverse"))[0]  # 0 or 2
    return work.binary("mul", work.affine(drawn, 1.0, -1.0), work.reshape(noise, (1,) * len(shape)))


def budget_of(work: GraphBuilder, h: int, target: int) -> int:
    """Emit ``(cos(h, ĥ) + 1) / 2`` of each of n values ``[n, …]``: the alignment with the target; ½ if either is 0."""
    dot = _sum_all(work, work.binary("mul", h, target))
    norms = [work.unary(_squares(work, z), "sqrt") for z in (h, target)]
    size = work.binary("max", work.binary("mul", *norms), work.scalar(_TINY))
    return work.affine(work.binary("div", dot, size), 0.5, 0.5)


def gap_of(work: GraphBuilder, shift: int) -> int:
    """Emit the root mean square of each of n shifts to a target, ``[n, …]``."""
    return work.unary(work.affine(_squares(work, shift), 1 / max(prod(work.shape(shift)[1:]), 1)), "sqrt")


def pace_of(work: GraphBuilder, budgets: Sequence[int], gate: float) -> UpdatePace:
    """Emit the pace of an array that belongs to layers with these budgets."""
    budget = work.affine(work.add(*budgets), 1 / len(budgets))
    closed = work.binary("greater", work.scalar(gate), budget)
    return UpdatePace(work.affine(budget, 0.5, 0.5), work.affine(closed, -1.0, 1.0))


def _squares(work: GraphBuilder, x: int) -> int:
    return work.sumsq([x]) if work.shape(x)[0] == 1 else _sum_all(work, work.unary(x, "square"))


def _sum_all(work: GraphBuilder, x: int) -> int:
    n, *axes = work.shape(x)
    return work.reshape(work.reduce(x, "sum", range(1, 1 + len(axes))), (n,))
