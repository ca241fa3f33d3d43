"""Values of an ONNX graph while it is emitted: known arrays, or tensors of the graph under construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import UnsupportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxValue:
    """One value.

    Attributes
    ----------
    dtype : its type in ONNX. A tensor holds every type as float32: truth values as 0 and 1, integers exactly up to 2²⁴
    shape : its shape in ONNX, () for a scalar, whose tensor has the shape (1,)
    array : its elements if they are known while the graph is built
    tensor : its tensor otherwise
    ids : the same integers as an int32 tensor, if there is one; only lookups read it
    sources : names of the inputs of the graph from which it is computed
    """

    dtype: np.dtype
    shape: Shape
    array: Array | None = None
    tensor: int | None = None
    ids: int | None = None
    sources: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


def known_value(array: object, dtype: np.dtype | type | None = None) -> OnnxValue:
    """Return a value with known elements."""
    value = np.asarray(array, dtype)
    return OnnxValue(dtype=value.dtype, shape=value.shape, array=value)


def tensor_shape(shape: Shape) -> Shape:
    """Return the shape of the tensor of a value."""
    return tuple(shape) or (1,)


class TooManyStepsError(UnsupportedError):
    """A loop has more steps than are written one after the other."""


class InputsNeededError(UnsupportedError):
    """The graph depends on the elements of these inputs, not only on their shapes.

    Whoever emits the graph can emit it again with these elements as known arrays.
    """

    def __init__(self, names: Iterable[str], message: str) -> None:
        super().__init__(message, hint="the graph must be built anew for each value of these inputs")
        self.names = frozenset(names)
