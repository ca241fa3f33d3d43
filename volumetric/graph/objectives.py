"""Losses in a graph, one for each of one or more outputs of a network; their totals are differentiated together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.graph.ops import TensorType

EmitTerms: TypeAlias = Callable[[GraphBuilder, int, int], int]
"""Takes a builder, the tensor of outputs and the tensor of targets; returns the tensor of a loss's terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss of one output of a network, for one shape.

    Attributes
    ----------
    name : of the output
    output : its shape
    target, target_type : shape and dtype of the targets, as the loss operation takes them
    weights : shape of the weights of terms, or None if all are 1
    loss : name and attributes of the loss operation, or the function that emits the terms of a custom loss
    """

    name: str
    output: Shape
    target: Shape
    target_type: TensorType
    weights: Shape | None
    loss: Mapping[str, Any] | EmitTerms

    @property
    def terms(self) -> Shape:
        """Shape of the output that the loss operation takes."""
        return (prod(self.output[:-1]), self.output[-1]) if self.by_rows else self.output

    @property
    def by_rows(self) -> bool:
        """Whether a term is a row of the output rather than an element."""
        return not callable(self.loss) and self.loss["name"] == "cross_entropy"

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies it among objectives with the same losses."""
        return self.name, self.output, self.target, self.target_type, self.weights


@dataclass(frozen=True, slots=True)
class ForwardLosses:
    """A forward pass with its losses.

    Attributes
    ----------
    totals : the total of each loss, [n]
    slopes : for each loss, the tensor of the output and the gradient of its total with respect to that output
    values : value of the plan → tensor, if emitted
    stream_states : buffer of a state of streams → its new value, to be written after all nodes that read the old value
    """

    totals: int
    slopes: tuple[tuple[int, int], ...]
    values: Mapping[int, int] = field(default_factory=dict)
    stream_states: Mapping[str, int] = field(default_factory=dict)


def emit_targets(work: GraphBuilder, of: Objective) -> tuple[int, int | None]:
    """Add the inputs of a loss: targets, and weights of terms if it has any."""
    target = work.input(f"targets of {of.name}", of.target, of.target_type)
    return target, None if of.weights is None else work.input(f"weights of {of.name}", of.weights)


def emit_objectives(
    work: GraphBuilder, of: Sequence[Objective], outputs: Mapping[str, int], targets: Sequence[tuple[int, int | None]]
) -> ForwardLosses:
    """Emit the losses of outputs by name."""
    totals: list[int] = []
    slopes: list[tuple[int, int]] = []
    for objective, (target, weighing) in zip(of, targets, strict=True):
        y = outputs[objective.name]
        prediction = work.reshape(y, objective.terms)
        if callable(objective.loss):
            total, slope = own_loss(work, objective.loss, prediction, target, weighing)
        else:
            total, _, slope = work.loss(**objective.loss, prediction=prediction, target=target, weights=weighing)
        totals.append(total)
        slopes.append((y, work.reshape(slope, work.shape(y))))
    return ForwardLosses(totals[0] if len(totals) == 1 else work.concat(totals, 0), tuple(slopes))


def emit_seeds(work: GraphBuilder, slopes: Sequence[tuple[int, int]], *, shared: bool) -> dict[int, int]:
    """Return output → gradient of the sum of losses.

    If `shared`, the input "shares" holds each loss's share of the gradient factor in the optimiser's scalars;
    otherwise the only loss has all of it.
    """
    if not shared:
        return dict(slopes)
    seeds: dict[int, int] = {}
    shares = work.split(work.input("shares", (len(slopes),)), [1] * len(slopes), 0)
    for (y, slope), share in zip(slopes, shares, strict=True):
        part = work.binary("mul", slope, work.reshape(share, (1,) * len(work.shape(slope))))
        seeds[y] = work.add(seeds[y], part) if y in seeds else part
    return seeds


def own_loss(work: GraphBuilder, emit: EmitTerms, y: int, target: int, weights: int | None) -> tuple[int, int]:
    """Emit a custom loss by its terms; return their weighted sum [1], and its gradient with respect to the output `y`.

    Raises
    ------
    SpecError
        The terms do not depend on the output.
    """
    terms = emit(work, y, target)
    shape = work.shape(terms)
    if weights is None:
        weights = work.broadcast(work.constant(np.ones((1,) * len(shape)), "ones"), shape)
    total = work.reduce(work.binary("mul", terms, weights), "sum", range(len(shape)))
    slopes = differentiate(work, {terms: weights}, [y])
    if y not in slopes:
        raise SpecError(
            "graph: the terms of the loss do not depend on the output",
            hint="use operations with a gradient: comparisons, sign and floor have none",
        )
    return work.reshape(total, (1,)), slopes[y]
