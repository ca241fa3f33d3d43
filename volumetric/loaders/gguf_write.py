"""Writer of GGUF version 3 files: metadata, then tensors streamed one at a time, atomically."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.progress import WorkMeter
from volumetric.loaders.gguf import MAGIC, MAX_AXES
from volumetric.loaders.gguf_types import GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_values import ARRAY, SCALAR_NUMBERS, STRING

ALIGNMENT: Final = 32
Metadata: TypeAlias = "Mapping[str, bool | str | np.generic | list[str] | Array]"
"""Key → value; numbers are NumPy scalars or 1-d arrays, because the file stores their width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFTensorOut:
    """One tensor to write: `read` returns its contiguous bytes when it is written; `done` frees them."""

    type: str
    shape: Shape
    read: Callable[[], Array]
    done: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the file, without padding. Raises `CheckpointError` if rows do not fill the type's blocks."""
        kind = GGUF_TYPES[TYPE_NUMBERS[self.type]]
        if kind.block > 1 and (not self.shape or self.shape[-1] % kind.block):
            raise CheckpointError(f"shape {list(self.shape)} does not fill blocks of {kind.block} ({self.type})")
        return int(np.prod(self.shape, dtype=np.int64)) // kind.block * kind.block_bytes


def write_gguf(path: str | os.PathLike[str], metadata: Metadata, tensors: Mapping[str, GGUFTensorOut]) -> None:
    """Write a file in the order of the two mappings.

    Raises
    ------
    CheckpointError
        A value has no GGUF form, a tensor does not match its description, or the file cannot be written.
    """
    head = bytearray(MAGIC)
    head += (3).to_bytes(4, "little") + _u64(len(tensors)) + _u64(len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(key, value)
    offset = 0
    for name, tensor in tensors.items():
        head += _info(name, tensor, offset)
        offset += tensor.nbytes + _padding(tensor.nbytes)
    head += bytes(_padding(len(head)))
    with atomic_file(path) as handle, WorkMeter(f"writing {Path(path).name}", len(tensors), nbytes=offset) as meter:
        handle.write(head)
        for name, tensor in tensors.items():
            data = np.ascontiguousarray(tensor.read()).reshape(-1).view(np.uint8)
            if data.size != tensor.nbytes:
                raise CheckpointError(f"tensor {name!r} has {data.size} bytes, expected {tensor.nbytes}")
            handle.write(data.data)
            handle.write(bytes(_padding(data.size)))
            meter.step(data.size)
            del data  # free it before the next one is created
            if tensor.done is not None:
                tensor.done()


def _padding(size: int) -> int:
    return -size % ALIGNMENT


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _string(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"the text {text[:60]!a} contains half of a surrogate pair and cannot be written"
        ) from error
    return _u64(len(data)) + data


def _value(key: str, value: object) -> bytes:
    """Type number and value of one metadata entry."""
    match value:
        case bool() | np.bool_():
            return _u32(7) + bytes([bool(value)])
        case str():
            return _u32(STRING) + _string(value)
        case list() if all(isinstance(item, str) for item in value):
            return _u32(ARRAY) + _u32(STRING) + _u64(len(value)) + b"".join(map(_string, value))
        case np.ndarray() if value.ndim == 1 and value.dtype in SCALAR_NUMBERS:
            return _u32(ARRAY) + _u32(SCALAR_NUMBERS[value.dtype]) + _u64(value.size) + value.tobytes()
        case np.generic() if value.dtype in SCALAR_NUMBERS:
            return _u32(SCALAR_NUMBERS[value.dtype]) + value.tobytes()
    raise CheckpointError(f"metadata key {key!r}: a {type(value).__name__} has no GGUF form")


def _info(name: str, tensor: GGUFTensorOut, offset: int) -> bytes:
    if len(tensor.shape) > MAX_AXES:
        raise CheckpointError(f"tensor {name!r} has {len(tensor.shape)} axes, GGUF allows {MAX_AXES}")
    axes = b"".join(map(_u64, reversed(tensor.shape)))
    return _string(name) + _u32(len(tensor.shape)) + axes + _u32(TYPE_NUMBERS[tensor.type]) + _u64(offset)
