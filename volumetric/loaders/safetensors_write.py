"""Writer of safetensors files: streams tensors to disk one at a time, atomically, in a canonical order."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError
from volumetric.base.progress import WorkMeter
from volumetric.loaders.safetensors import MAX_HEADER_BYTES, TAGS, tensor_bytes

DATA_ALIGNMENT: Final = 64
"""The first tensor starts on a cache line, so SIMD code can use mapped views directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOut:
    """One tensor to write: type and shape are known in advance, values are read when it is written.

    Attributes
    ----------
    tag : a dtype tag of safetensors, ``"BF16"``
    shape : logical shape
    read : returns the values, an array of the tag's host type (4-bit types unpacked, one byte each)
    done : called after writing, to release the memory behind the result of `read`
    """

    tag: str
    shape: Shape
    read: Callable[[], Array]
    done: Callable[[], None] | None = None


def tag_of(dtype: np.dtype) -> str:
    """Return the tag of a host type. Raises `CheckpointError` if safetensors has none."""
    for tag, info in TAGS.items():
        if info.host is not None and info.host == dtype:  # None would compare as float64
            return tag
    raise CheckpointError(f"safetensors has no tag for {dtype}", hint=f"known tags: {', '.join(TAGS)}")


def array_out(array: Array) -> TensorOut:
    """Describe an array in memory."""
    return TensorOut(tag=tag_of(array.dtype), shape=array.shape, read=lambda: array)


Metadata: TypeAlias = Mapping[str, str]
Sealed: TypeAlias = Callable[[Mapping[str, int]], Metadata]
"""Function from the CRC-32 of every tensor to metadata, whose length must not depend on the values."""


def write_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, TensorOut], metadata: Metadata | Sealed | None = None
) -> None:
    """Write a file whose bytes depend only on names, types, values and metadata.

    Tensors are ordered by falling width, then by name, so each one is aligned to its element size. Each is read once,
    in the order of `tensors`, so parts that are computed together need not be kept, and is written at its offset;
    metadata with checksums come before the tensors, but are written last.

    Raises
    ------
    CheckpointError
        A name is reserved, a tensor does not match its description, or the file cannot be written.
    """
    order = sorted(tensors, key=lambda name: (-TAGS[tensors[name].tag].bits, name))
    sums = dict.fromkeys(order, 0)
    starts, end = _starts(order, tensors)
    header = _header(order, tensors, metadata(sums) if callable(metadata) else metadata or {})
    with atomic_file(path) as handle:
        handle.write(len(header).to_bytes(8, "little"))
        handle.write(header)
        with WorkMeter(f"writing {Path(path).name}", len(order), nbytes=end) as meter:
            for name, tensor in tensors.items():
                content = _bytes_of(name, tensor)
                handle.seek(8 + len(header) + starts[name])
                handle.write(content)
                sums[name] = zlib.crc32(content)
                meter.step(content.nbytes)
                del content  # free it before the next one is created
                if tensor.done is not None:
                    tensor.done()
        if callable(metadata):
            sealed = _header(order, tensors, metadata(sums))
            if len(sealed) != len(header):
                raise CheckpointError(f"the length of the metadata of {path} changed with the checksums")
            handle.seek(8)
            handle.write(sealed)


def _starts(order: list[str], tensors: Mapping[str, TensorOut]) -> tuple[dict[str, int], int]:
    """Offset of every tensor from the first tensor, and the end of the last."""
    starts, at = {}, 0
    for name in order:
        starts[name] = at
        at += tensor_bytes(tensors[name].tag, tensors[name].shape)
    return starts, at


def _header(order: list[str], tensors: Mapping[str, TensorOut], metadata: Mapping[str, str]) -> bytes:
    if "__metadata__" in tensors:
        raise CheckpointError("a tensor cannot be named __metadata__")
    fields: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    starts, end = _starts(order, tensors)
    for name, stop in zip(order, [*(starts[name] for name in order[1:]), end], strict=False):
        tensor = tensors[name]
        fields[name] = {"dtype": tensor.tag, "shape": list(tensor.shape), "data_offsets": [starts[name], stop]}
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % DATA_ALIGNMENT)
    if len(text) > MAX_HEADER_BYTES:
        raise CheckpointError(f"header of {len(text)} bytes is over the limit of {MAX_HEADER_BYTES}")
    return text


def _bytes_of(name: str, tensor: TensorOut) -> memoryview:
    array = np.ascontiguousarray(tensor.read()).reshape(tensor.shape)
    info = TAGS[tensor.tag]
    if array.dtype != info.host:
        raise CheckpointError(f"tensor {name!r} is {array.dtype}, expected {tensor.tag}")
    raw = array.reshape(-1).view(np.uint8)
    if info.bits == 4:
        codes = raw.reshape(-1, 2) & 15
        raw = codes[:, 0] | (codes[:, 1] << 4)
    return np.ascontiguousarray(raw).data
