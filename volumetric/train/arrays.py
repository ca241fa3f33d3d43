"""Arrays of samples, single or by name, and the checks of their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.network import INPUT, OUTPUT

Inputs: TypeAlias = "Array | Mapping[str, Array]"
"""The array of the only input, or arrays by input name."""
Targets: TypeAlias = "Array | Mapping[str, Array]"
"""Targets of the only output that has a loss, or targets by output name."""
Absent: TypeAlias = "Collection[int] | Mapping[str, Collection[int]] | None"
"""Node ids of the only fabric, or node ids by fabric path."""
Masks: TypeAlias = "Array | Mapping[str, Array] | None"
"""Term weights, shared by all outputs that have targets, or by output name."""


def by_input_name(inputs: Inputs) -> Mapping[str, Array]:
    """Return inputs by name."""
    return inputs if isinstance(inputs, Mapping) else {INPUT: inputs}


def arrays_of(inputs: Inputs, targets: Targets, mask: Masks) -> dict[str, Array]:
    """Return all arrays by the names that they have in files: ``inputs``, ``inputs.types``, ``targets.value``, ….

    Arrays of the input ``"input"`` and of the output ``"output"`` have no suffix.
    """
    arrays: dict[str, Array] = {}
    for prefix, of, plain in (("inputs", inputs, INPUT), ("targets", targets, OUTPUT), ("mask", mask, OUTPUT)):
        if isinstance(of, Mapping):
            arrays |= {prefix if name == plain else f"{prefix}.{name}": array for name, array in of.items()}
        elif of is not None:
            arrays[prefix] = of
    return arrays


def map_arrays(of: Any, change: Callable[[Array], Array]) -> Any:
    """Apply `change` to an array or to each array of a mapping; None stays None."""
    if isinstance(of, Mapping):
        return {name: change(array) for name, array in of.items()}
    return None if of is None else change(of)


def as_arrays(of: Any, what: str) -> Any:
    """Return an array of numbers, or a mapping of such arrays; None stays None.

    Raises
    ------
    ShapeError : `what` is ragged, or holds text, dates, objects or complex numbers
    """
    if isinstance(of, Mapping):
        return {name: _numbers(array, f"{what} {name!r}") for name, array in of.items()}
    return None if of is None else _numbers(of, what)


def _numbers(value: Any, what: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:  # NumPy's own message says "inhomogeneous shapes"
        raise ShapeError(
            f"{what}: rows have unequal lengths", hint="pad them, and mask the padding with weights of 0"
        ) from None
    except (RuntimeError, TypeError) as error:  # tensors on a device, or with a gradient
        raise ShapeError(
            f"{what}: {type(value).__name__} cannot be read as an array: {error}",
            hint="pass a NumPy array, as tensor.detach().cpu().numpy()",
        ) from None
    if array.dtype.kind == "O" and all(isinstance(one, int | float | np.number | np.bool_) for one in array.flat):
        array = np.array(array.tolist())
    if np.can_cast(array.dtype, np.float64, "same_kind"):
        return array
    raise ShapeError(
        f"{what} must be numbers, got {_kind(array)}", hint=_WAYS.get(array.dtype.kind, "bool, integers or floats")
    )


def _kind(array: Array) -> str:
    return {"U": "text", "S": "bytes", "O": "Python objects", "c": "complex numbers"}.get(
        array.dtype.kind, str(array.dtype)
    )


_WAYS = {
    "U": 'numbers from text: array.astype("float32"); class ids from labels: '
    "names, ids = numpy.unique(labels, return_inverse=True)",
    "S": 'array.astype("float32")',
    "O": 'array.astype("float32") if all values are numbers',
    "c": "pass the real and imaginary parts as two features",
}
"""Kind of a dtype → how to convert it to numbers."""
