"""Batches with losses, targets and weights, in the form of training graphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.objectives import Objective
from volumetric.train.graph_loss import GraphLoss
from volumetric.train.losses import CrossEntropy, Loss
from volumetric.train.output_losses import Losses, OutputTargets, Tally, Terms

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class BatchObjective:
    """Losses of outputs, their arrays, and output → number of terms."""

    objectives: tuple[Objective, ...]
    arrays: list[Array]
    counts: dict[str, float]

    @property
    def key(self) -> tuple[object, ...]:
        """Key that distinguishes it from others with the same losses."""
        return tuple(of.key for of in self.objectives)

    def tally(self, totals: Sequence[float]) -> Tally:
        """Return the terms with these sums."""
        counts = self.counts.items()
        return Tally({name: Terms(total, count) for (name, count), total in zip(counts, totals, strict=True)})


@dataclass(frozen=True, slots=True)
class PreparedBatch(Generic[P]):
    """A batch in graph form. The pass `of` is a `ForwardPass` of rows, or a `TickPass`."""

    of: P
    arrays: list[Array]
    posed: BatchObjective


def share_losses(losses: Losses, ready: Sequence[PreparedBatch[Any]]) -> tuple[list[PreparedBatch[Any]], float]:
    """Return the batches of one update with the shares of their losses, and the factor on all gradients."""
    counts: dict[str, float] = {}
    for one in ready:
        for name, count in one.posed.counts.items():
            counts[name] = counts.get(name, 0) + count
    scale, shares = losses.shares(counts)
    if len(counts) == 1:
        return [*ready], scale
    shared: list[PreparedBatch[Any]] = []
    for one in ready:
        own = np.array([shares[name] for name in one.posed.counts], np.float32)
        of = dataclasses.replace(one.of, shared=True)
        shared.append(dataclasses.replace(one, of=of, arrays=[*one.arrays, own]))
    return shared, scale


def prepare_objective(
    losses: Losses, targets: Mapping[str, OutputTargets], shapes: Mapping[str, Shape]
) -> BatchObjective:
    """Check targets and masks for outputs of some shapes, and convert them to graph form.

    Raises
    ------
    ShapeError, SpecError : they do not fit (see `Loss.checked`); with several losses the message names the output
    """
    objectives: list[Objective] = []
    arrays: list[Array] = []
    counts: dict[str, float] = {}
    for name, what in targets.items():
        with naming_output(losses, name):
            objective, output_arrays, counts[name] = _prepare_one(name, losses.of[name], shapes[name], what)
        objectives.append(objective)
        arrays += output_arrays
    return BatchObjective(tuple(objectives), arrays, counts)


@contextmanager
def naming_output(losses: Losses, name: str) -> Iterator[None]:
    """Name the output in an error, if there are several losses."""
    try:
        yield
    except (ShapeError, SpecError) as error:
        if len(losses.of) == 1:
            raise
        raise type(error)(f"output {name!r}: {error}", hint=error.hint) from None


def _prepare_one(name: str, loss: Loss, output: Shape, masked: OutputTargets) -> tuple[Objective, list[Array], float]:
    checked = loss.checked(output, masked.target, masked.mask)
    own = isinstance(loss, GraphLoss)
    if isinstance(loss, GraphLoss):
        ids = loss.tensor_type(checked.target) == "int32"
    else:
        ids = isinstance(loss, CrossEntropy) and checked.target.ndim < len(output)
    of = Objective(
        name=name,
        output=output,
        target=(),
        target_type="int32" if ids else "float32",
        weights=None,
        loss=loss.emit if isinstance(loss, GraphLoss) else _attributes(loss),
    )
    target, weights = checked.target, checked.weights
    if not own:  # which accepts both unchanged
        terms = of.terms[:1] if of.by_rows else of.terms
        target = target.reshape(terms if ids else of.terms)
        weights = None if weights is None else weights.reshape(terms)
    arrays = [np.ascontiguousarray(target, np.int32 if ids else np.float32)]
    if weights is not None:
        arrays.append(np.ascontiguousarray(weights, np.float32))
    of = dataclasses.replace(of, target=target.shape, weights=None if weights is None else weights.shape)
    return of, arrays, checked.count


def _attributes(loss: Loss) -> Mapping[str, Any]:
    fields = {f.name: getattr(loss, f.name) for f in dataclasses.fields(loss) if f.name != "reduction"}
    return {"name": loss.kind, **fields}
