"""The update of weights in graphs: clipping, the optimiser's step, and nothing written if a new value is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetric.base._typing import Shape
from volumetric.graph.build import GraphBuilder
from volumetric.run.graph.loss_scale import LossScale, finite_mask

MARGIN = 1e-6
"""Added to the norm in the divisor of clipping, as in torch."""
KNOBS = 4
"""Scalars of an update from the host: rate, factor on the gradients, and the optimiser's two, see `update`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRule:
    """The update rule of trained arrays.

    Attributes
    ----------
    masters : key → shape of every trained array
    updates : key → attributes of its update operation
    slots : names of the optimiser's arrays; `slot_key` returns the buffer of a key
    clip : bound on the global norm of gradients, or None
    buffers : key → shape of the buffers that layers may change; they are written together with the weights
    scaled : gradients are computed multiplied by the loss scale and by the factor of the knobs, see `LossScale`
    """

    masters: Mapping[str, Shape]
    updates: Mapping[str, Mapping[str, Any]]
    slots: tuple[str, ...]
    clip: float | None
    buffers: Mapping[str, Shape] = field(default_factory=dict)
    scaled: bool = False


def slot_key(slot: str, key: str) -> str:
    """Return the name of the buffer of a slot."""
    return f"slot/{slot}/{key}"


@dataclass(frozen=True, slots=True)
class UpdatePace:
    """The pace of an array in an update: a factor on its rate [1], and a number [1] that skips its update if 0."""

    rate: int
    moves: int


def write_update(
    work: GraphBuilder,
    rule: UpdateRule,
    gradients: Mapping[str, int],
    buffers: Mapping[str, int],
    knobs: int,
    totals: int | None,
    paces: Mapping[str, UpdatePace] | None = None,
    *,
    written: int | None = None,
    loss_scale: LossScale | None = None,
) -> list[int]:
    """Emit clipping and updates; nothing is written unless `totals`, norm, new weights and buffers are all finite.

    Returns the norm of the gradients [1], and [1] of 1 if the update is written, which a 0 in `written` [1] prevents.
    With a loss scale it is 1 also if the update is skipped because scaled gradients overflowed; the norm is not finite
    then, and the scale is halved.
    """
    norm, factor = _clip_factor(work, rule, gradients, knobs, loss_scale)
    rate, _, first, second = work.split(knobs, [1] * KNOBS, 0)
    fits = finite_mask(work, norm)
    judged = written
    if totals is not None:
        one = work.reduce(totals, "sum", (0,)) if work.shape(totals) != (1,) else totals
        finite = finite_mask(work, one)
        judged = finite if judged is None else work.binary("mul", judged, finite)
    good = fits if judged is None else work.binary("mul", fits, judged)

    paced = paces or {}

    def scalars(good: int) -> Callable[[str], int]:  # of the update of an array
        plain = work.concat([rate, factor, first, second, good], 0)

        def of(key: str) -> int:
            if key not in paced:
                return plain
            own, moves = work.binary("mul", rate, paced[key].rate), work.binary("mul", good, paced[key].moves)
            return work.concat([own, factor, first, second, moves], 0)

        return of

    trial = scalars(good)
    squares = [
        work.sumsq([_emit_optimiser_step(work, rule, key, g, trial(key), in_place=False)])
        for key, g in gradients.items()
    ]
    good = work.binary("mul", good, finite_mask(work, work.reduce(work.concat(squares, 0), "max", (0,))))
    for value in buffers.values():
        good = work.binary("mul", good, finite_mask(work, work.reduce(work.unary(value, "abs"), "max", (0,))))
    final = scalars(good)
    for key, value in buffers.items():
        work.assign(key, value, good)
    for key, g in gradients.items():
        _emit_optimiser_step(work, rule, key, g, final(key), in_place=True)
    return [
        norm,
        good if loss_scale is None else loss_scale.adapt(fits, work.scalar(1.0) if judged is None else judged, good),
    ]


def trial_update(
    work: GraphBuilder, rule: UpdateRule, gradients: Mapping[str, int], knobs: int
) -> tuple[int, dict[str, int]]:
    """Emit an update without writes: the norm of the gradients [1], and the new value of each array by key."""
    norm, factor = _clip_factor(work, rule, gradients, knobs)
    rate, _, first, second = work.split(knobs, [1] * KNOBS, 0)
    scalars = work.concat([rate, factor, first, second, work.scalar(1.0)], 0)
    return norm, {
        key: _emit_optimiser_step(work, rule, key, g, scalars, in_place=False) for key, g in gradients.items()
    }


def _clip_factor(
    work: GraphBuilder,
    rule: UpdateRule,
    gradients: Mapping[str, int],
    knobs: int,
    loss_scale: LossScale | None = None,
) -> tuple[int, int]:
    """Emit the global norm of gradients, and the factor of clipping; scaled gradients have the factor of the knobs."""
    scale = work.split(knobs, [1] * KNOBS, 0)[1]
    if loss_scale is not None:
        scale = work.binary("div", work.scalar(1.0), loss_scale.factor)
    norm = work.binary("mul", work.unary(work.sumsq(list(gradients.values())), "sqrt"), scale)
    if rule.clip is None:
        return norm, scale
    limit = work.binary("div", work.scalar(rule.clip), work.affine(norm, 1.0, MARGIN))
    return norm, work.binary("mul", scale, work.binary("min", limit, work.scalar(1.0)))


def _emit_optimiser_step(
    work: GraphBuilder, rule: UpdateRule, key: str, g: int, scalars: int, *, in_place: bool
) -> int:
    """Emit the update of one array and return its new value.

    Each is computed twice: once to check that all new values are finite, into scratch memory that the next one reuses,
    and once in place. Storing all new values until the check is done would take as much memory as weights and slots.
    """
    shape = rule.masters[key]
    slots = [work.stored_tensor(slot_key(slot, key), shape) for slot in rule.slots]
    attrs = rule.updates[key]
    return work.update(
        param=work.stored_tensor(key, shape), grad=g, slots=slots, scalars=scalars, in_place=in_place, **attrs
    )[0]
