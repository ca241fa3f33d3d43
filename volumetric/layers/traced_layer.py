"""Layers of users: `emit` computes with traced tensors, and its mistakes are reported as those of the layer."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from volumetric.base._typing import Shape
from volumetric.base.caller_location import with_caller_location
from volumetric.base.errors import ShapeError, SpecError, VolumetricError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.traced_tensor import TracedTensor

if TYPE_CHECKING:
    from volumetric.layers.emit_scope import Scope
    from volumetric.layers.layer_spec import LayerSpec


def emit_traced(scope: Scope, spec: LayerSpec, inputs: Sequence[int]) -> Any:
    """Emit a layer in plain arithmetic and return its output, a number again unless the caller traces, too.

    Raises
    ------
    SpecError : `emit` raises another error than those of the engine, or does not return a tensor of this graph
    ShapeError : it returns another shape than `output_shape` says
    """
    work, outer = scope.work, scope.work.traces
    with work.tracing(f"the layer {spec.kind}"):
        try:
            y: Any = spec.emit(scope, *(work.traced(x) for x in inputs))
        except VolumetricError as error:
            raise with_caller_location(error) from error
        except Exception as error:
            _refuse(scope, spec, error)
    if isinstance(y, bool) or not isinstance(y, (int, TracedTensor)) or not 0 <= index(y) < len(work.tensors):
        raise SpecError(
            f"{spec.kind} at {scope.path}: emit returned {y!r:.60}, not a tensor",
            hint="return what emit computes from its inputs",
        )
    if isinstance(y, TracedTensor) and y.work is not work:
        raise SpecError(
            f"{spec.kind} at {scope.path}: emit returned a tensor of another graph",
            hint="compute from the arguments of emit, not from tensors that an earlier call stored",
        )
    _check_shape(scope, spec, inputs, work.shape(index(y)))
    if not outer:
        return index(y)
    return y if isinstance(y, TracedTensor) else work.traced(y)


def _check_shape(scope: Scope, spec: LayerSpec, inputs: Sequence[int], shape: Shape) -> None:
    """Raise `ShapeError` unless `emit` returned rows of the shape that `output_shape` promises."""
    promised = spec.output_shape(*(scope.work.shape(x) for x in inputs))
    if shape[1:] == promised[1:]:
        return
    sizes = ", ".join(
        ["*shape[:-1]", str(shape[-1])] if shape[1:-1] == promised[1:-1] else ["shape[0]", *map(str, shape[1:])]
    )
    raise ShapeError(
        f"{spec.kind} at {scope.path}: emit returned rows of shape {list(shape[1:])}, but output_shape says "
        f"{list(promised[1:])}",
        hint=f"define output_shape in the layer: def output_shape(self, shape): return ({sizes})",
    )


def _refuse(scope: Scope, spec: LayerSpec, error: Exception) -> NoReturn:
    """Raise an error with the line of the user's code."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    hint = "a tensor has operators, indexing and the functions of NumPy; parameters are scope.params(self)[name]"
    if isinstance(error, AttributeError) and isinstance(error.obj, GraphBuilder):
        hint = "compute in plain arithmetic, as x / (1 + abs(x)), or name an operation: scope.work.unary(x, name)"
    raise SpecError(
        f"{spec.kind} at {scope.path}: emit raised {type(error).__name__}: {error} ({Path(frame.filename).name}, line "
        f"{frame.lineno})",
        hint=hint,
    ) from error
