"""Metadata values of a GGUF file: a cursor that reads them within the file and its limits.

Type numbers and layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.loaders.mapped_file import MappedFile

MAX_KEY_BYTES: Final = 65_535
"""Limit of the format for keys; also used for tensor names."""
BOOL, STRING, ARRAY = 7, 8, 9
SCALARS: Final[dict[int, str]] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""Value type number → NumPy type."""
SCALAR_NUMBERS: Final = {np.dtype(code): kind for kind, code in SCALARS.items()}
"""NumPy type → value type number."""
_UNPACK: Final = {kind: struct.Struct("<" + code) for kind, code in zip(SCALARS, "BbHhIif?Qqd", strict=True)}
_LENGTH: Final = struct.Struct("<Q").unpack_from


class LazyStrings:
    """A lazy array of strings in the file: a vocabulary takes time only if a tokenizer is built.

    ``len()`` is free; iteration reads one string at a time, `decode` reads all.
    """

    __slots__ = ("_count", "_file", "_start", "_stop")

    def __init__(self, file: MappedFile, start: int, stop: int, count: int) -> None:
        self._file, self._start, self._stop, self._count = file, start, stop, count
        file.release(start, stop)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        """Read string after string. Raises `CheckpointError` for one that is not UTF-8."""
        buffer, at = self._file.buffer, self._start
        for i in range(self._count):
            (length,) = _LENGTH(buffer, at)
            at += 8
            try:
                yield buffer[at : at + length].decode()
            except UnicodeDecodeError as error:
                raise CheckpointError(f"{self._file.path}: string {i} of an array is not UTF-8") from error
            at += length
        self._file.release(self._start, self._stop)

    def decode(self) -> list[str]:
        """Return all strings; raises as iteration."""
        return list(self)

    def raw(self) -> bytes:
        """Return the bytes in the file: of each string its length in 8 bytes, and its text."""
        raw = self._file.buffer[self._start : self._stop]
        self._file.release(self._start, self._stop)
        return raw


MetadataValue: TypeAlias = "bool | int | float | str | LazyStrings | np.ndarray[Any, Any]"
"""Types of metadata values that are supported here."""


class MetadataCursor:
    """A position in a mapped file that moves forward and checks every length against the rest of the file.

    All `read_*` methods raise `CheckpointError` at the end of the file or for an impossible value.
    """

    __slots__ = ("at", "file")

    def __init__(self, file: MappedFile, at: int) -> None:
        self.file: MappedFile = file
        self.at: int = at

    @property
    def bytes_left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.file.size - self.at

    def _take(self, count: int, what: str) -> int:
        if count > self.bytes_left:
            raise CheckpointError(f"{what} of {count} bytes at byte {self.at} reaches beyond the end of the file")
        start = self.at
        self.at += count
        return start

    def read_scalar(self, kind: int, what: str) -> bool | int | float:
        """Read one number or truth value of type number `kind`."""
        unpack = _UNPACK[kind]
        start = self._take(unpack.size, what)
        if kind == BOOL and self.file.buffer[start] > 1:
            raise CheckpointError(f"{what} is the truth value {self.file.buffer[start]}, expected 0 or 1")
        (value,) = unpack.unpack_from(self.file.buffer, start)
        # A float32 is read as its shortest decimal: 1e-05, not 9.999999747378752e-06.
        return float(str(np.float32(value))) if kind == 6 else value

    def read_u32(self, what: str) -> int:
        """Read an unsigned 32-bit integer."""
        return int(self.read_scalar(4, what))

    def read_u64(self, what: str) -> int:
        """Read an unsigned 64-bit integer."""
        return int(self.read_scalar(10, what))

    def read_string(self, what: str, limit: int | None = None) -> str:
        """Read a string of at most `limit` bytes."""
        length = self.read_u64(f"length of {what}")
        if limit is not None and length > limit:
            raise CheckpointError(f"{what} at byte {self.at} has {length} bytes, more than {limit}")
        start = self._take(length, what)
        try:
            return self.file.buffer[start : start + length].decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{what} at byte {start} is not UTF-8") from error

    def read_value(self, kind: int, what: str) -> MetadataValue:
        """Read a value of any type; string arrays stay in the file."""
        if kind == STRING:
            return self.read_string(what)
        if kind == ARRAY:
            return self._read_array(what)
        if kind not in SCALARS:
            raise CheckpointError(f"{what} has unknown value type {kind}")
        return self.read_scalar(kind, what)

    def _read_array(self, what: str) -> MetadataValue:
        kind, count = self.read_u32(what), self.read_u64(what)
        if kind == STRING:
            return self._skip_strings(count, what)
        if kind not in SCALARS:
            # No model uses arrays of arrays; refusing them bounds depth and memory.
            raise CheckpointError(f"{what} is an array of value type {kind}, which is not supported")
        dtype = np.dtype(SCALARS[kind])
        start = self._take(count * dtype.itemsize, what)
        raw = self.file.view(start, self.at)
        if kind == BOOL and raw.size and raw.max() > 1:
            raise CheckpointError(f"{what} has truth values other than 0 and 1")
        return raw.view(dtype)

    def _skip_strings(self, count: int, what: str) -> LazyStrings:
        if count > self.bytes_left // 8:
            raise CheckpointError(f"{what} announces {count} strings with {self.bytes_left} bytes left")
        buffer, end, start, at = self.file.buffer, self.file.size, self.at, self.at
        # The hot loop of opening a model: 100 000 strings in a typical file. Each length is checked in the next turn.
        last = end - 8
        for _ in range(count):
            if at > last:
                raise CheckpointError(f"a string of {what} reaches beyond the end of the file")
            at += 8 + _LENGTH(buffer, at)[0]
        if at > end:
            raise CheckpointError(f"a string of {what} reaches beyond the end of the file")
        self.at = at
        return LazyStrings(self.file, start, at, count)
