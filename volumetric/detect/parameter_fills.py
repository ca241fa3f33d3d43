"""Fills: which tensors of a file become a parameter, and how they are converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, decode
from volumetric.loaders.target_schemes import convert
from volumetric.loaders.tensor_source import TensorSource
from volumetric.network.weight_store import WeightStore

FLOAT32 = Scheme.parse("float32")


@dataclass(frozen=True, slots=True)
class ParameterFill:
    """One parameter.

    Attributes
    ----------
    tensors : names in the file
    make : their values → the parameter; None: the one tensor unchanged, in its stored type
    """

    tensors: tuple[str, ...]
    make: Callable[..., Array] | None = None


def verbatim_fill(name: str) -> ParameterFill:
    """Fill a parameter with one unchanged tensor."""
    return ParameterFill((name,))


def transposed_fill(name: str) -> ParameterFill:
    """Fill a parameter with a matrix that is stored as ``[in, out]``."""
    return ParameterFill((name,), lambda matrix: matrix.T)


def store_of(fill: ParameterFill, shape: Shape, source: TensorSource, target: Scheme | None, where: str) -> WeightStore:
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


def prefix_fills(fills: Mapping[str, ParameterFill], prefix: str) -> dict[str, ParameterFill]:
    """Prepend a path to the names of the parameters."""
    return {f"{prefix}/{name}": fill for name, fill in fills.items()}
