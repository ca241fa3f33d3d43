"""GGUFTensors: the tensors of a GGUF model, whose bytes a file has or another source invents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, from_gguf
from volumetric.loaders.gguf_types import BLOCK_TYPES, DECODED_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_values import MetadataValue
from volumetric.loaders.tensor_source import TensorEntry

HOSTS: Final[Mapping[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""Types of single numbers."""


class GGUFTensors(ABC):
    """Metadata and tensors.

    Parameters
    ----------
    where : what messages call the source
    metadata : mapping of key to value; string arrays are `LazyStrings`
    entries : mapping of tensor name to `TensorEntry`; shapes are row-major, the reverse of the file's order
    """

    __slots__ = ("entries", "metadata", "where")

    def __init__(self, where: str, metadata: Mapping[str, MetadataValue], entries: Mapping[str, TensorEntry]) -> None:
        self.where: str = where
        self.metadata: Mapping[str, MetadataValue] = metadata
        self.entries: Mapping[str, TensorEntry] = entries

    @abstractmethod
    def raw_part(self, name: str, start: int, stop: int) -> Array:
        """Return bytes ``start:stop`` of one tensor, read-only uint8."""

    @abstractmethod
    def release(self, name: str) -> None:
        """Allow the system to drop the memory of one tensor; it can be read again."""

    def raw(self, name: str) -> Array:
        """Return the bytes of one tensor, read-only uint8."""
        return self.raw_part(name, 0, self._entry(name).nbytes)

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of the result of `packed`: floats and `BLOCK_TYPES` unchanged, `DECODED_TYPES` as float32.

        Raises
        ------
        CheckpointError
            There is no such tensor, or its type is not supported.
        """
        kind = self._entry(name).type
        if kind in HOSTS or kind in BLOCK_TYPES:
            return Scheme.parse(kind)
        if kind in DECODED_TYPES:
            return Scheme.parse("float32")
        known = ", ".join(sorted(HOSTS.keys() | BLOCK_TYPES | DECODED_TYPES))
        raise CheckpointError(
            f"{self.where}: tensor {name!r} has type {kind}, which cannot be read",
            hint=f"quantise the model to one of {known}",
        )

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Return rows ``start:stop`` of one tensor, ``[stop - start, k]``, without reading other rows."""
        self.scheme(name)
        entry = self.entries[name]
        row_bytes = entry.nbytes // max(prod(entry.shape[:-1]), 1)
        raw = self.raw_part(name, start * row_bytes, stop * row_bytes)
        return pack_tensor(raw, entry.type, (stop - start, *entry.shape[-1:]))

    def packed(self, name: str) -> Packed:
        """Return one tensor in stored form; see `scheme`."""
        self.scheme(name)
        return pack_tensor(self.raw(name), self.entries[name].type, self.entries[name].shape)

    def _entry(self, name: str) -> TensorEntry:
        if name not in self.entries:
            raise CheckpointError(
                f"{self.where} has no tensor {name!r}", hint=f"it has {len(self.entries)} other tensors"
            )
        return self.entries[name]


def pack_tensor(raw: Array, kind: str, shape: Shape) -> Packed:
    """Return the bytes of a tensor of a type of `GGUFTensors.scheme` in stored form."""
    if kind in HOSTS:
        return Packed.from_array(raw.view(HOSTS[kind]).reshape(shape))
    if kind in BLOCK_TYPES:
        return from_gguf(raw, kind, shape)
    return Packed.from_array(_decode(raw, kind, shape))


def _decode(raw: Array, kind: str, shape: Shape) -> Array:
    """Decode blocks of a type without a scheme here, with the reference code of the ``gguf`` package."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    values = dequantize(raw.reshape(prod(shape[:-1]), -1), GGMLQuantizationType(TYPE_NUMBERS[kind]))
    return np.ascontiguousarray(values, np.float32).reshape(shape)
