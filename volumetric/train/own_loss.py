"""A loss of one's own: a function that emits its terms as nodes of a graph, which every device runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.runtime.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.runtime.graph.objectives import EmitTerms, own_loss
from volumetric.runtime.graph.ops import TensorType
from volumetric.train.losses import Checked, Loss, LossTerms, spread_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLoss(Loss):
    """The loss whose terms a function emits; its gradient is found by differentiating them.

    Attributes
    ----------
    function : called as ``function(work, output, target)`` with a `GraphBuilder` and the numbers of two of its tensors;
        returns the number of the tensor of terms, float32. The output is ``[samples, …]``, or ``[samples, T, …]`` for
        sequences, on some devices ``[T, …]`` for one of them: so axes are counted from the end, and the terms keep the
        first ones. Targets of integers are an int32 tensor. `volumetric.runtime.graph.ops` lists the operations.

    Raises
    ------
    ShapeError, SpecError
        From all methods: the function cannot be applied to these shapes, returns no terms of the samples, or ones that
        do not depend on the output.

    Examples
    --------
    >>> def squared(work, output, target):
    ...     return work.unary(work.binary("sub", output, target), "square")
    >>> GraphLoss(function=squared).terms(np.ones((2, 1)), np.zeros((2, 1))).total
    2.0
    """

    kind: ClassVar[str] = "graph"

    function: EmitTerms

    def __post_init__(self) -> None:
        """Check that there is a function."""
        Loss.__post_init__(self)
        if not callable(self.function):
            raise SpecError(f"graph: the loss needs a function, got {self.function!r}")

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> Checked:
        terms = _terms_of(self.function, shape, target.shape, kind_of(target))
        if mask is None:
            return Checked(target, None, float(np.prod(terms)))
        weights = spread_weights(mask, terms)
        return Checked(target, weights, float(weights.sum(dtype=np.float64)))

    def terms(self, output: Array, target: Array, mask: Array | None = None) -> LossTerms:
        checked = self.checked(output.shape, target, mask)
        weights = checked.weights
        graph = _graph_of(self.function, output.shape, target.shape, kind_of(target), weighted=weights is not None)
        graphs = NumpyGraphs(np.float64 if output.dtype == np.float64 else np.float32)
        wide = output.dtype
        inputs = [output, target if kind_of(target) == "int32" else target.astype(wide, copy=False)]
        if weights is not None:
            inputs.append(weights.astype(wide))
        total, slope = graphs.compile(graph, graphs.store()).run(inputs)
        return LossTerms(total.item(), checked.count, slope.astype(output.dtype, copy=False))


def kind_of(target: Array) -> TensorType:
    """Return the type of the tensor that holds these targets."""
    return "int32" if np.issubdtype(target.dtype, np.integer) else "float32"


@lru_cache(maxsize=64)
def _terms_of(function: EmitTerms, output: Shape, target: Shape, kind: TensorType) -> Shape:
    """Return the shape of the terms of an output of this shape."""
    work = GraphBuilder()
    made = function(work, work.input("output", output), work.input("targets", target, kind))
    if isinstance(made, bool) or not isinstance(made, int) or not 0 <= made < len(work.tensors):
        raise SpecError(
            f"graph: the loss's function returned {made!r}, not the number of a tensor",
            hint="return what a method of the graph builder gave",
        )
    terms = work.tensors[made]
    if terms.dtype != "float32" or terms.shape[:1] != output[:1]:
        raise ShapeError(
            f"graph: the loss's terms are {terms.dtype} {list(terms.shape)}, the output is {list(output)}",
            hint="terms are numbers of single samples: do not sum over the first axis",
        )
    return terms.shape


@lru_cache(maxsize=64)
def _graph_of(function: EmitTerms, output: Shape, target: Shape, kind: TensorType, *, weighted: bool) -> Graph:
    """Graph of output, targets [, weights] to the sum of the terms and its slope."""
    work = GraphBuilder()
    y, t = work.input("output", output), work.input("targets", target, kind)
    weights = work.input("weights", _terms_of(function, output, target, kind)) if weighted else None
    return work.finish(own_loss(work, function, y, t, weights))
