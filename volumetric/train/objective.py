"""A loss, targets and weights as graphs take them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.runtime.graph.training import Objective
from volumetric.train.losses import CrossEntropy, Loss
from volumetric.train.own_loss import GraphLoss


@dataclass(frozen=True, slots=True)
class Posed:
    """A loss of outputs of one shape, the arrays that it takes, and the number of its terms."""

    objective: Objective
    arrays: list[Array]
    count: float


def pose(loss: Loss, output: Shape, targets: Array, mask: Array | None) -> Posed:
    """Check targets and mask for outputs of a shape, and bring them into the form of graphs.

    Raises
    ------
    ShapeError, SpecError : they do not fit (see `Loss.checked`)
    """
    checked = loss.checked(output, targets, mask)
    own = isinstance(loss, GraphLoss)
    whole = np.issubdtype(checked.target.dtype, np.integer)
    ids = whole and (own or (isinstance(loss, CrossEntropy) and checked.target.ndim < len(output)))
    of = Objective(
        output=output,
        target=(),
        target_type="int32" if ids else "float32",
        weights=None,
        loss=loss.function if isinstance(loss, GraphLoss) else _attributes(loss),
    )
    target, weights = checked.target, checked.weights
    if not own:  # which takes both as they are
        terms = of.terms[:1] if of.by_rows else of.terms
        target = target.reshape(terms if ids else of.terms)
        weights = None if weights is None else weights.reshape(terms)
    arrays = [np.ascontiguousarray(target, np.int32 if ids else np.float32)]
    if weights is not None:
        arrays.append(np.ascontiguousarray(weights, np.float32))
    of = dataclasses.replace(of, target=target.shape, weights=None if weights is None else weights.shape)
    return Posed(of, arrays, checked.count)


def _attributes(loss: Loss) -> Mapping[str, Any]:
    fields = {f.name: getattr(loss, f.name) for f in dataclasses.fields(loss) if f.name != "reduction"}
    return {"name": loss.kind, **fields}
