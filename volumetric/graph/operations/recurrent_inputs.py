"""The inputs of operations with a recurrent cell, by name: tensors, or their representation on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from volumetric.graph.numeric.numpy_cells import CELLS

T = TypeVar("T")


class RecurrentInputs(NamedTuple):
    """Inputs of a recurrent operation other than ``from_x`` and the weight, by kind."""

    starts: tuple[Any, ...]
    bias: tuple[Any, ...]
    keep: tuple[Any, ...]


def recurrent_inputs(rest: Sequence[T], attrs: Mapping[str, Any]) -> RecurrentInputs:
    """Split the inputs after ``from_x`` and the weight by kind."""
    first = len(CELLS[attrs["cell"]].states)
    end = first + attrs["bias"]
    return RecurrentInputs(tuple(rest[:first]), tuple(rest[first:end]), tuple(rest[end:]))


class RecurrentGradInputs(NamedTuple):
    """Inputs of the gradient of a recurrent operation; a tuple of an optional input may be empty."""

    gy: Any
    g_last: tuple[Any, ...]
    y: Any
    saved: tuple[Any, ...]
    weight: Any
    starts: tuple[Any, ...]
    keep: tuple[Any, ...]


def recurrent_grad_inputs(inputs: Sequence[T], attrs: Mapping[str, Any]) -> RecurrentGradInputs:
    """Split the inputs of ``recurrent_grad`` by kind."""
    cell, rest = CELLS[attrs["cell"]], list(inputs)

    def take(count: int) -> tuple:
        values = tuple(rest[:count])
        del rest[:count]
        return values

    states = len(cell.states)
    return RecurrentGradInputs(
        gy=take(1)[0],
        g_last=take(attrs["last"] * (states - 1)),
        y=take(1)[0],
        saved=take(int(cell.saved_count > 0)),
        weight=take(1)[0],
        starts=take(states),
        keep=take(attrs["resets"]),
    )


class CellGradInputs(NamedTuple):
    """Inputs of the gradient of one step of a cell; a tuple of an optional input may be empty."""

    gy: Any
    g_others: tuple[Any, ...]
    y: Any
    others: tuple[Any, ...]
    saved: tuple[Any, ...]
    before: tuple[Any, ...]


def cell_grad_inputs(inputs: Sequence[T], attrs: Mapping[str, Any]) -> CellGradInputs:
    """Split the inputs of ``cell_grad`` by kind."""
    cell, rest = CELLS[attrs["cell"]], iter(inputs)
    several = len(cell.states) > 1

    def take(there: object) -> tuple:
        return (next(rest),) if there else ()

    return CellGradInputs(next(rest), take(several), next(rest), take(several), take(cell.keeps), take(cell.direct))
