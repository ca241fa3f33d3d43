"""Arrays of samples: one, or several by name, and what they must be made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.network import INPUT, OUTPUT

Inputs: TypeAlias = "Array | Mapping[str, Array]"
"""Of a network with one input, or of all its inputs by name."""
Targets: TypeAlias = "Array | Mapping[str, Array]"
"""Of the only output that has a loss, or of outputs by name."""
Absent: TypeAlias = "Collection[int] | Mapping[str, Collection[int]] | None"
"""Ids of nodes of the only fabric, or of fabrics by their paths."""
Masks: TypeAlias = "Array | Mapping[str, Array] | None"
"""Weights of terms, the same for all outputs that have targets, or those of outputs by name."""


def named(inputs: Inputs) -> Mapping[str, Array]:
    """Return inputs by name."""
    return inputs if isinstance(inputs, Mapping) else {INPUT: inputs}


def arrays_of(inputs: Inputs, targets: Targets, mask: Masks) -> dict[str, Array]:
    """Return all arrays by the names that they have in files: ``inputs``, ``inputs.types``, ``targets.value``, ….

    What belongs to the input ``"input"`` or the output ``"output"`` has no further name.
    """
    arrays: dict[str, Array] = {}
    for prefix, of, plain in (("inputs", inputs, INPUT), ("targets", targets, OUTPUT), ("mask", mask, OUTPUT)):
        if isinstance(of, Mapping):
            arrays |= {prefix if name == plain else f"{prefix}.{name}": array for name, array in of.items()}
        elif of is not None:
            arrays[prefix] = of
    return arrays


def changed(of: Any, change: Callable[[Array], Array]) -> Any:
    """Change one array, or those of a mapping, or nothing."""
    if isinstance(of, Mapping):
        return {name: change(array) for name, array in of.items()}
    return None if of is None else change(of)


def as_arrays(of: Any, what: str) -> Any:
    """Return what was given as an array of numbers, or as a mapping of such; None stays None.

    Raises
    ------
    ShapeError : the message names `what` is ragged, or holds text, dates, objects or complex numbers
    """
    if isinstance(of, Mapping):
        return {name: _numbers(array, f"{what} {name!r}") for name, array in of.items()}
    return None if of is None else _numbers(of, what)


def _numbers(value: Any, what: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:  # NumPy's message speaks of "inhomogeneous shapes"
        raise ShapeError(
            f"{what}: rows of unequal lengths make no array", hint="pad them, and mask the padding with weights of 0"
        ) from None
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
    "O": 'array.astype("float32") where all of them are numbers',
    "c": "give real and imaginary parts as two features",
}
"""Kind of an array's type → how numbers are made of it."""
