"""Fills: which tensors of a file become a parameter, and how they are converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.loaders.quantise import convert
from volumetric.loaders.source import TensorSource
from volumetric.network.weights import WeightStore

FLOAT32 = Scheme.parse("float32")


@dataclass(frozen=True, slots=True)
class Fill:
    """One parameter.

    Attributes
    ----------
    tensors : names in the file
    make : their values → the parameter; None: the one tensor unchanged, in its stored type
    """

    tensors: tuple[str, ...]
    make: Callable[..., Array] | None = None


def verbatim(name: str) -> Fill:
    """Fill a parameter with one unchanged tensor."""
    return Fill((name,))


def transposed(name: str) -> Fill:
    """Fill a parameter with a matrix that is stored as ``[in, out]``."""
    return Fill((name,), lambda matrix: matrix.T)


def store_of(fill: Fill, shape: Shape, source: TensorSource, target: Scheme | None, where: str) -> WeightStore:
    """Return a lazy store of one parameter.

    Raises
    ------
    CheckpointError
        A tensor is not numeric; or, when it is read, its shape differs from the parameter's.
    """
    scheme = source.scheme(fill.tensors[0]) if fill.make is None else FLOAT32

    def produce() -> Packed:
        if fill.make is None:
            packed = source.packed(fill.tensors[0])
        else:
            values = [decode(source.packed(name)).reshape(source.entries[name].shape) for name in fill.tensors]
            packed = Packed.from_array(np.ascontiguousarray(fill.make(*values), np.float32))
        if packed.shape != shape:
            raise CheckpointError(
                f"{where}: tensor {fill.tensors[0]!r} has shape {list(packed.shape)}, expected {list(shape)}"
            )
        return convert(packed, target)

    def release() -> None:
        for name in fill.tensors:
            source.release(name)

    return WeightStore(shape, target or scheme, produce, release=release)


def renamed(fills: Mapping[str, Fill], prefix: str) -> dict[str, Fill]:
    """Prepend a path to the names of the parameters."""
    return {f"{prefix}/{name}": fill for name, fill in fills.items()}
