"""Strict reader of safetensors files: every byte of the file is checked before a tensor is returned.

The format (https://huggingface.co/docs/safetensors): eight bytes of little-endian header length, a JSON object that
maps tensor names to ``{"dtype", "shape", "data_offsets"}``, then the tensors, contiguous and without holes. The package
of the same name is not used for reading, because its NumPy side cannot represent the 8- and 4-bit float types.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import suggestion
from volumetric.dtypes import DTYPES, Packed, Scheme
from volumetric.loaders.mapped_file import MappedFile
from volumetric.loaders.tensor_source import TensorEntry

MAX_HEADER_BYTES: Final = 100_000_000
"""Limit of the reference implementation; a longer header is an attack or a damaged length."""
MAX_AXES: Final = 32
MAX_AXIS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TagInfo:
    """Width of one dtype tag, and the NumPy type that holds one element unpacked (None: bytes only)."""

    bits: int
    host: np.dtype[Any] | None


TAGS: Final[Mapping[str, TagInfo]] = {
    "BOOL": TagInfo(8, np.dtype(np.bool_)),
    "F4": TagInfo(4, np.dtype(ml_dtypes.float4_e2m1fn)),
    "F6_E2M3": TagInfo(6, None),
    "F6_E3M2": TagInfo(6, None),
    "U8": TagInfo(8, np.dtype(np.uint8)),
    "I8": TagInfo(8, np.dtype(np.int8)),
    "F8_E5M2": TagInfo(8, np.dtype(ml_dtypes.float8_e5m2)),
    "F8_E4M3": TagInfo(8, np.dtype(ml_dtypes.float8_e4m3fn)),
    "F8_E8M0": TagInfo(8, np.dtype(ml_dtypes.float8_e8m0fnu)),
    "F8_E4M3FNUZ": TagInfo(8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    "F8_E5M2FNUZ": TagInfo(8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
    "I16": TagInfo(16, np.dtype("<i2")),
    "U16": TagInfo(16, np.dtype("<u2")),
    "F16": TagInfo(16, np.dtype("<f2")),
    "BF16": TagInfo(16, np.dtype(ml_dtypes.bfloat16)),
    "I32": TagInfo(32, np.dtype("<i4")),
    "U32": TagInfo(32, np.dtype("<u4")),
    "F32": TagInfo(32, np.dtype("<f4")),
    "C64": TagInfo(64, np.dtype("<c8")),
    "F64": TagInfo(64, np.dtype("<f8")),
    "I64": TagInfo(64, np.dtype("<i8")),
    "U64": TagInfo(64, np.dtype("<u8")),
}
"""Every dtype tag of safetensors 0.8 → its width and host type."""

_SCHEMES: Final = {dtype.safetensors: Scheme(dtype=dtype) for dtype in DTYPES if dtype.safetensors and dtype.bits >= 8}
_WIDENED: Final = frozenset({"F4", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
"""Tags of real numbers that are read as float32, because no scheme has their layout."""
_FLOAT32: Final = _SCHEMES["F32"]


def tensor_bytes(tag: str, shape: Shape) -> int:
    """Bytes of a tensor in the file. Raises `CheckpointError` for a tensor that does not end on a byte."""
    bits = TAGS[tag].bits
    for axis in shape:
        bits *= axis
    if bits % 8:
        raise CheckpointError(f"a {tag} tensor of shape {list(shape)} does not fill whole bytes")
    return bits // 8


class SafetensorsFile:
    """One safetensors file, fully checked when opened and read tensor by tensor.

    Parameters
    ----------
    path : path-like

    Attributes
    ----------
    entries : mapping of name to `TensorEntry`, in file order
    metadata : the file's ``__metadata__``, text to text

    Raises
    ------
    CheckpointError
        The file is damaged; the message describes how.
    """

    __slots__ = ("_file", "entries", "metadata")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = MappedFile(path)
        try:
            header, data_start = _read_header(self._file)
            self.metadata: dict[str, str] = _metadata(header)
            self.entries: dict[str, TensorEntry] = _entries(header, data_start, self._file.size)
        except CheckpointError as error:
            raise CheckpointError(f"{self._file.path}: {error}", hint=error.hint) from error.__cause__

    def array(self, name: str) -> Array:
        """Return one tensor as a read-only array of its host type.

        The result is a view of the mapped file, except for F4, whose pairs are unpacked to one byte per element.

        Raises
        ------
        CheckpointError
            There is no such tensor, or its type has no array form (F6).
        """
        return self._array(self._entry(name))

    def _array(self, entry: TensorEntry) -> Array:
        host = TAGS[entry.type].host
        if host is None:
            raise CheckpointError(
                f"{self._file.path}: tensor {entry.name!r} has type {entry.type}, which cannot be decoded"
            )
        raw = self._file.view(entry.start, entry.stop)
        if TAGS[entry.type].bits == 4:
            return _spread_nibbles(raw).view(host).reshape(entry.shape)
        return raw.view(host).reshape(entry.shape)

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of the result of `packed`.

        Raises
        ------
        CheckpointError
            There is no such tensor, or its elements are not real numbers that can be decoded.
        """
        return scheme_of_tag(self._entry(name).type, f"{self._file.path}: tensor {name!r}")

    def packed(self, name: str) -> Packed:
        """Return one tensor in stored form, a view of the mapped file if the layouts match; see `scheme`."""
        return pack_array(self.array(name), self.scheme(name))

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Return rows ``start:stop`` of one tensor in stored form, ``[stop - start, k]``."""
        scheme, entry = self.scheme(name), self.entries[name]
        row_bytes, rest = divmod(entry.nbytes, max(prod(entry.shape[:-1]), 1))
        if rest:  # rows of an odd number of half bytes
            return self.packed(name).slice_rows(start, stop)
        rows = replace(
            entry,
            shape=(stop - start, *entry.shape[-1:]),
            start=entry.start + start * row_bytes,
            stop=entry.start + stop * row_bytes,
        )
        return pack_array(self._array(rows), scheme)

    def release(self, name: str) -> None:
        """Allow the system to drop the mapped pages of one tensor; it can be read again."""
        entry = self._entry(name)
        self._file.release(entry.start, entry.stop)

    def _entry(self, name: str) -> TensorEntry:
        try:
            return self.entries[name]
        except KeyError:
            near = suggestion(name, self.entries, f"the file has {len(self.entries)} other tensors", most=3)
            raise CheckpointError(f"{self._file.path} has no tensor {name!r}", hint=near) from None


def host_of_tag(tag: str) -> np.dtype[Any]:
    """Return the NumPy type of a dtype tag. Raises `CheckpointError` if there is none."""
    host = TAGS[tag].host
    if host is None:
        raise CheckpointError(f"elements of type {tag} cannot be decoded")
    return host


def scheme_of_tag(tag: str, where: str) -> Scheme:
    """Return the scheme that holds elements of a dtype tag. Raises `CheckpointError` if they are no real numbers."""
    if tag in _WIDENED:
        return _FLOAT32
    if tag not in _SCHEMES:
        raise CheckpointError(f"{where} has type {tag}, which is not supported for weights")
    return _SCHEMES[tag]


def pack_array(array: Array, scheme: Scheme) -> Packed:
    """Return an array in stored form: of its own type, or widened to float32."""
    return Packed.from_array(array if array.dtype == scheme.dtype.host else array.astype(np.float32))


def _spread_nibbles(raw: Array) -> Array:
    """Two 4-bit codes a byte, low half first → one byte each."""
    codes = np.empty((raw.size, 2), np.uint8)
    np.bitwise_and(raw, 15, out=codes[:, 0])
    np.right_shift(raw, 4, out=codes[:, 1])
    codes.flags.writeable = False
    return codes.reshape(-1)


def _read_header(file: MappedFile) -> tuple[dict[str, Any], int]:
    if file.size < 8:
        raise CheckpointError(f"{file.size} bytes are too few for a header length")
    length = int.from_bytes(file.buffer[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"header of {length} bytes is over the limit of {MAX_HEADER_BYTES}")
    if length > file.size - 8:
        raise CheckpointError(f"header of {length} bytes reaches beyond the {file.size} bytes of the file")
    text = file.buffer[8 : 8 + length]
    if not text.startswith(b"{"):
        raise CheckpointError("header does not start with '{'")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"header is not JSON: {_first_line(error)}") from error
    return header, 8 + length


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _no_constant(text: str) -> None:
    raise CheckpointError(f"header has the number {text}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object hook for `json.loads` that refuses duplicate keys, which readers resolve differently."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen_keys: set[str] = set()
        again = next(key for key, _ in pairs if key in seen_keys or seen_keys.add(key))
        raise CheckpointError(f"header has the duplicate name {again[:200]!r}")
    return result


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CheckpointError("__metadata__ must map text to text")
    return metadata


def _entries(header: dict[str, Any], data_start: int, size: int) -> dict[str, TensorEntry]:
    """Check every tensor, and that they cover the data exactly once."""
    entries = [_entry(name, fields, data_start) for name, fields in header.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    end, last = data_start, "the header"
    for entry in entries:
        if entry.start != end:
            what = "a hole between" if entry.start > end else "an overlap of"
            raise CheckpointError(f"{what} {last} and tensor {entry.name!r} ({entry.start - end:+d} bytes)")
        end, last = entry.stop, f"tensor {entry.name!r}"
        if end > size:
            raise CheckpointError(f"{last} ends at byte {end} of a file of {size} bytes")
    if end != size:
        raise CheckpointError(f"{size - end} bytes after {last} belong to no tensor")
    return {entry.name: entry for entry in entries}


def _entry(name: str, fields: object, data_start: int) -> TensorEntry:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"tensor {name!r} must have exactly dtype, shape and data_offsets")
    tag, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(tag, str) or tag not in TAGS:
        raise CheckpointError(f"tensor {name!r} has unknown dtype {str(tag)[:40]!r}", hint=f"known: {', '.join(TAGS)}")
    if not _whole_numbers(shape) or len(shape) > MAX_AXES:
        raise CheckpointError(f"tensor {name!r} has shape {str(shape)[:80]}, not a short list of whole numbers")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"tensor {name!r} has data_offsets {str(offsets)[:80]}, not [begin, end]")
    needed = tensor_bytes(tag, tuple(shape))
    if offsets[1] - offsets[0] != needed:
        raise CheckpointError(
            f"tensor {name!r}: {tag} {shape} needs {needed} bytes, its offsets give {offsets[1] - offsets[0]}"
        )
    start, stop = data_start + offsets[0], data_start + offsets[1]
    return TensorEntry(name=name, type=tag, shape=tuple(shape), start=start, stop=stop)


def _whole_numbers(value: object) -> bool:
    """A list of integers that fit 64 bits; JSON's true is not 1 here."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= MAX_AXIS for item in value)
