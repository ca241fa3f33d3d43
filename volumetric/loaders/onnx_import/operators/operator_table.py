"""The table of operators: name → the function that emits it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from volumetric.loaders.onnx_import.onnx_values import OnnxValue

if TYPE_CHECKING:
    pass

EmitOperator: TypeAlias = "Callable[..., OnnxValue | Sequence[OnnxValue]]"
"""``emit(call, *inputs)``: an input that is left out is None."""
E = TypeVar("E", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """How an operator is emitted.

    Attributes
    ----------
    emit : emits one node
    static : indices of inputs whose elements must be known while the graph is built
    """

    emit: EmitOperator
    static: tuple[int, ...] = ()


_RULES: Final[dict[str, OperatorRule]] = {}
_FAMILIES = (
    "element_functions",
    "elementwise_math",
    "comparisons",
    "array_movement",
    "array_indexing",
    "matrix_products",
    "convolutions",
    "image_pooling",
    "image_resizing",
    "row_norms",
    "axis_reductions",
    "recurrent_nodes",
    "integer_arithmetic",
    "control_flow",
    "fourier_transforms",
    "ort_fusions",
)


def operator(*names: str, static: tuple[int, ...] = ()) -> Callable[[E], E]:
    """Register a function for operators; a name outside the standard domain is ``domain:name``."""

    def register(emit: E) -> E:
        for name in names:
            _RULES[name] = OperatorRule(emit, static)
        return emit

    return register


@cache
def operator_rules() -> dict[str, OperatorRule]:
    """Return all operators that can be emitted."""
    for family in _FAMILIES:
        import_module(f"volumetric.loaders.onnx_import.operators.{family}")
    return _RULES
