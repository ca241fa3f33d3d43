"""Custom losses: a function emits the terms as nodes of a graph, which every device runs."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.caller_location import with_caller_location
from volumetric.base.errors import ShapeError, SpecError, VolumetricError
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.graph.objectives import EmitTerms, own_loss
from volumetric.graph.ops import TensorType
from volumetric.graph.traced_tensor import TracedTensor
from volumetric.train.losses import CheckedTargets, Loss, LossTerms
from volumetric.train.target_checks import spread_weights

FORMS: Final = "f(prediction, target) in plain arithmetic, or f(work, output, target) with a GraphBuilder"
"""Signatures of a loss function."""


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLoss(Loss):
    """A loss whose terms a function emits; its gradient is derived automatically.

    Attributes
    ----------
    function : takes two or three arguments and returns the terms, at least one for each sample.
        ``function(prediction, target)`` computes with operators and NumPy's functions (see `TracedTensor`); targets
        are float32. ``function(work, output, target)`` also gets a `GraphBuilder`, whose methods are named after the
        operations of `volumetric.graph.operations`; integer targets are an int32 tensor. Both return the terms,
        float32. The output is ``[samples, …]``, or ``[samples, T, …]`` for
        sequences, on some devices ``[T, …]`` for one sequence: count axes from the end, and keep the leading axes in
        the terms.

    Raises
    ------
    ShapeError, SpecError
        From all methods: the function fails for these shapes, does not return terms for each sample, or returns terms
        that do not depend on the output.

    Examples
    --------
    >>> def squared(work, output, target):
    ...     return work.unary(work.binary("sub", output, target), "square")
    >>> GraphLoss(function=squared).terms(np.ones((2, 1)), np.zeros((2, 1))).total
    2.0
    >>> GraphLoss(function=lambda p, t: (p - t) ** 2).terms(np.ones((2, 1)), np.zeros((2, 1))).total
    2.0
    """

    kind: ClassVar[str] = "graph"

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        """Check the function and its number of arguments."""
        Loss.__post_init__(self)
        if not callable(self.function):
            raise SpecError(f"graph: the loss needs a function, got {self.function!r}", hint=FORMS)
        if _arguments(self.function) not in (2, 3):
            raise SpecError(
                f"the loss {_name(self.function)} takes {_arguments(self.function)} arguments", hint=f"write {FORMS}"
            )

    @property
    def terms_function(self) -> Callable[..., Any]:
        """The function, with values for all but its two or three arguments."""
        return self.function

    @property
    def emit(self) -> EmitTerms:
        """Function that emits the terms into a graph."""
        return _emitter(self.terms_function)

    def tensor_type(self, target: Array) -> TensorType:
        """Return the type of the tensor that holds these targets."""
        whole = np.issubdtype(target.dtype, np.integer) and _arguments(self.terms_function) == 3
        return "int32" if whole else "float32"

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> CheckedTargets:
        terms = _terms_of(self.terms_function, shape, target.shape, self.tensor_type(target))
        if mask is None:
            return CheckedTargets(target, None, float(np.prod(terms)))
        weights = spread_weights(mask, terms)
        return CheckedTargets(target, weights, float(weights.sum(dtype=np.float64)))

    def terms(self, output: Array, target: Array, mask: Array | None = None) -> LossTerms:
        checked = self.checked(output.shape, target, mask)
        weights = checked.weights
        kind = self.tensor_type(target)
        graph = _graph_of(self.terms_function, output.shape, target.shape, kind, weighted=weights is not None)
        graphs = NumpyGraphs(np.float64 if output.dtype == np.float64 else np.float32)
        wide = output.dtype
        inputs = [output, target if kind == "int32" else target.astype(wide, copy=False)]
        if weights is not None:
            inputs.append(weights.astype(wide))
        total, slope = graphs.compile(graph, graphs.store()).run(inputs)
        return LossTerms(total.item(), checked.count, slope.astype(output.dtype, copy=False))


@lru_cache(maxsize=64)
def _arguments(function: Callable[..., Any]) -> int:
    """Return the number of positional arguments of a function; 3 if it has no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 3
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 3
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters)


@lru_cache(maxsize=64)
def _emitter(function: Callable[..., Any]) -> EmitTerms:
    """Return a function that emits the terms of a loss and re-raises errors of the custom function with its name."""

    def emit(work: GraphBuilder, output: int, target: int) -> int:
        try:
            with work.tracing("a loss"):
                of = (work,) if _arguments(function) == 3 else ()
                terms = function(*of, work.traced(output), work.traced(target))
        except VolumetricError as error:
            raise with_caller_location(error) from error
        except Exception as error:
            _refuse(function, error)
        return index(terms) if isinstance(terms, TracedTensor) else terms

    return emit


def _refuse(function: Callable[..., Any], error: Exception) -> NoReturn:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    hint = f"write the loss as {FORMS}"
    if isinstance(error, AttributeError) and isinstance(error.obj, (GraphBuilder, TracedTensor)):
        kind = "work.unary(x, name) and work.binary(name, a, b)"
        hint = (
            f"operations are {kind}, and what docs/training.md lists; for plain arithmetic write f(prediction, target)"
        )
    raise SpecError(
        f"the loss {_name(function)} raised {type(error).__name__}: {error} ({Path(frame.filename).name}, line "
        f"{frame.lineno})",
        hint=hint,
    ) from error


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


@lru_cache(maxsize=64)
def _terms_of(function: Callable[..., Any], output: Shape, target: Shape, kind: TensorType) -> Shape:
    """Return the shape of the terms for an output of this shape."""
    work = GraphBuilder()
    tensor: Any = _emitter(function)(work, work.input("output", output), work.input("targets", target, kind))
    if isinstance(tensor, bool) or not isinstance(tensor, int) or not 0 <= tensor < len(work.tensors):
        is_plain = tensor is None or isinstance(tensor, int | float)
        value = tensor if is_plain else f"a {type(tensor).__name__}"
        raise SpecError(
            f"the loss {_name(function)} returned {value}, not a tensor",
            hint="return the terms: def loss(prediction, target): return (prediction - target) ** 2",
        )
    terms = work.tensors[tensor]
    if terms.dtype != "float32" or terms.shape[:1] != output[:1]:
        raise ShapeError(
            f"graph: the loss's terms are {terms.dtype} {list(terms.shape)}, the output is {list(output)}",
            hint="return a term for each sample: do not sum over the first axis",
        )
    if target == output[:-1] and terms.shape == (*target, *target[-1:]) != output:
        raise ShapeError(
            f"graph: the output is {list(output)}, the targets are {list(target)}, and the loss combined them to "
            f"{list(terms.shape)}: each sample with all others",
            hint="add the axis of the only output: targets[:, None]",
        )
    return terms.shape


@lru_cache(maxsize=64)
def _graph_of(function: Callable[..., Any], output: Shape, target: Shape, kind: TensorType, *, weighted: bool) -> Graph:
    """Return the graph from output, targets [, weights] to the sum of the terms and its gradient."""
    work = GraphBuilder()
    y, t = work.input("output", output), work.input("targets", target, kind)
    weights = work.input("weights", _terms_of(function, output, target, kind)) if weighted else None
    return work.finish(own_loss(work, _emitter(function), y, t, weights))
