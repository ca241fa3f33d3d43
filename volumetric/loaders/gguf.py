"""Strict reader of GGUF files (versions 2 and 3, little-endian), within bounded time and memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError
from volumetric.loaders.gguf_tensors import GGUFTensors
from volumetric.loaders.gguf_types import DECODED_TYPES, GGUF_TYPES
from volumetric.loaders.gguf_values import MAX_KEY_BYTES, MetadataCursor, MetadataValue
from volumetric.loaders.mapped_file import MappedFile
from volumetric.loaders.shards import parts_of
from volumetric.loaders.tensor_source import MergedSource, TensorEntry

MAGIC: Final = b"GGUF"
MAX_KEYS: Final = 100_000
MAX_TENSORS: Final = 200_000
"""Far above any model (a few thousand), and low enough that a false count cannot fill the memory."""
MAX_AXES: Final = 4
MAX_ALIGNMENT: Final = 1 << 20


class GGUFFile(GGUFTensors):
    """One GGUF file.

    Parameters
    ----------
    path : path-like

    Attributes
    ----------
    metadata : mapping of key to value; string arrays are `LazyStrings`
    entries : mapping of tensor name to `TensorEntry`; shapes are row-major, the reverse of the file's order

    Raises
    ------
    CheckpointError
        The file is damaged, truncated, big-endian, or of another version.
    """

    __slots__ = ("_file",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = MappedFile(path)
        try:
            cursor, tensors, keys = _read_head(self._file)
            metadata = _read_metadata(cursor, keys)
            entries = _read_entries(cursor, tensors, _alignment(metadata))
        except CheckpointError as error:
            raise CheckpointError(f"{self._file.path}: {error}", hint=error.hint) from error.__cause__
        super().__init__(str(self._file.path), metadata, entries)

    def raw_part(self, name: str, start: int, stop: int) -> Array:
        """Return bytes of one tensor, a view of the mapped file."""
        begin = self._entry(name).start
        return self._file.view(begin + start, begin + stop)

    def release(self, name: str) -> None:
        """Allow the system to drop the mapped pages of one tensor; it can be read again."""
        entry = self._entry(name)
        self._file.release(entry.start, entry.stop)


def _read_head(file: MappedFile) -> tuple[MetadataCursor, int, int]:
    """Read magic, version and the two counts; returns cursor, tensor count, key count."""
    if file.buffer[:4] != MAGIC:
        raise CheckpointError(
            f"the file starts with {file.buffer[:4]!r} instead of GGUF", hint="the file is not a GGUF model"
        )
    cursor = MetadataCursor(file, 4)
    version = cursor.read_u32("version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        what = f"big-endian GGUF version {swapped}" if swapped in (2, 3) else f"GGUF version {version}"
        raise CheckpointError(f"{what} is not supported", hint="convert the model to little-endian GGUF version 3")
    tensors, keys = cursor.read_u64("tensor count"), cursor.read_u64("key count")
    if tensors > MAX_TENSORS or keys > MAX_KEYS:
        raise CheckpointError(
            f"announces {tensors} tensors and {keys} keys; the limits are {MAX_TENSORS} and {MAX_KEYS}"
        )
    return cursor, tensors, keys


def _read_metadata(cursor: MetadataCursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for _ in range(count):
        key = cursor.read_string("key", MAX_KEY_BYTES)
        if key in metadata:
            raise CheckpointError(f"the metadata have the duplicate key {key!r}")
        metadata[key] = cursor.read_value(cursor.read_u32(f"type of {key!r}"), f"value of {key!r}")
    return metadata


def _alignment(metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", 32)
    if type(value) is not int or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise CheckpointError(f"general.alignment is {value!r}, not a power of two from 8 to {MAX_ALIGNMENT}")
    return value


def _read_entries(cursor: MetadataCursor, count: int, alignment: int) -> dict[str, TensorEntry]:
    """Read the tensor list and check that all tensors are inside the file, aligned and without overlap."""
    infos = [_read_info(cursor, alignment) for _ in range(count)]
    data_start = -(-cursor.at // alignment) * alignment
    entries: dict[str, TensorEntry] = {}
    for name, kind, shape, offset, nbytes in infos:
        start = data_start + offset
        if start + nbytes > cursor.file.size:
            raise CheckpointError(
                f"tensor {name!r} ends at byte {start + nbytes} of a file of {cursor.file.size} bytes"
            )
        if name in entries:
            raise CheckpointError(f"duplicate tensor {name!r}")
        entries[name] = TensorEntry(name=name, type=kind, shape=shape, start=start, stop=start + nbytes)
    _check_apart(entries)
    return entries


def _read_info(cursor: MetadataCursor, alignment: int) -> tuple[str, str, Shape, int, int]:
    """Read name, type, shape and offset of one tensor, and compute its bytes."""
    name = cursor.read_string("tensor name", MAX_KEY_BYTES)
    axes = cursor.read_u32(f"axes of {name!r}")
    if axes > MAX_AXES:
        raise CheckpointError(f"tensor {name!r} has {axes} axes, more than {MAX_AXES}")
    shape = tuple(cursor.read_u64(f"shape of {name!r}") for _ in range(axes))[::-1]
    number = cursor.read_u32(f"type of {name!r}")
    offset = cursor.read_u64(f"offset of {name!r}")
    if number not in GGUF_TYPES:
        raise CheckpointError(
            f"tensor {name!r} has unknown type {number}", hint="the file may be newer than this program"
        )
    kind = GGUF_TYPES[number]
    elements = 1
    for axis in shape:
        elements *= axis
    if kind.block > 1 and (not shape or shape[-1] % kind.block):
        raise CheckpointError(
            f"tensor {name!r} of shape {list(shape)} does not fill blocks of {kind.block} ({kind.name})"
        )
    if offset % alignment:
        raise CheckpointError(f"tensor {name!r} starts at offset {offset}, which is not a multiple of {alignment}")
    return name, kind.name, shape, offset, elements // kind.block * kind.block_bytes


def _check_apart(entries: Mapping[str, TensorEntry]) -> None:
    ordered = sorted(entries.values(), key=lambda entry: (entry.start, entry.stop))
    for before, after in pairwise(ordered):
        if before.stop > after.start:
            raise CheckpointError(f"tensors {before.name!r} and {after.name!r} overlap")


class SplitGGUF(MergedSource):
    """A GGUF model split into several files; the first file has the metadata.

    Raises
    ------
    CheckpointError
        A file is damaged, or the files do not form one model.
    """

    __slots__ = ("_files", "metadata")

    def __init__(self, paths: Sequence[Path]) -> None:
        files = [GGUFFile(path) for path in paths]
        for number, (path, file) in enumerate(zip(paths, files, strict=True)):
            if file.metadata.get("split.no") != number or file.metadata.get("split.count") != len(paths):
                raise CheckpointError(f"{path} is not part {number + 1} of {len(paths)} of a split model")
        super().__init__((path.name, file) for path, file in zip(paths, files, strict=True))
        self.metadata: Mapping[str, MetadataValue] = files[0].metadata
        self._files: dict[str, GGUFFile] = {name: file for file in files for name in file.entries}

    def raw_part(self, name: str, start: int, stop: int) -> Array:
        """Return bytes ``start:stop`` of one tensor."""
        return self._files[name].raw_part(name, start, stop)

    def raw(self, name: str) -> Array:
        """Return the bytes of one tensor."""
        return self._files[name].raw(name)


GGUFSource: TypeAlias = GGUFTensors | SplitGGUF
"""A GGUF model, in one file or several, or with other contents."""


def decoded_types(source: GGUFSource) -> dict[str, int]:
    """Return the types of tensors that are read as float32, with the number of tensors of each."""
    return dict(Counter(entry.type for entry in source.entries.values() if entry.type in DECODED_TYPES))


def open_gguf(path: Path) -> GGUFSource:
    """Open a GGUF model by its file, or by any file of a split model. Raises `CheckpointError`."""
    paths = parts_of(path)
    if len(paths) > 1:
        return SplitGGUF(paths)
    file = GGUFFile(path)
    if file.metadata.get("split.count", 1) not in (0, 1):
        raise CheckpointError(
            f"{path} is one part of a split model",
            hint=("restore its name NAME-00001-of-0000N.gguf, in the directory of the other parts"),
        )
    return file
