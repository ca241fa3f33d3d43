"""WeightPieces: contents of buffers in files of bounded size, equal contents once."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.recording_context import RecordedBuffer
from volumetric.web.variants import ALIGNMENT

PIECE_BYTES: Final = 64 << 20
INLINE_BYTES: Final = 1024
"""Contents up to this size are in network.json."""


class BufferContents(Protocol):
    """Where the contents of buffers go."""

    def describe(self, buffers: Sequence[RecordedBuffer]) -> Iterator[dict[str, Any]]:
        """Yield the entries of network.json that say what each buffer of a variant contains; drop the contents."""
        ...

    def entries(self) -> dict[str, Any]:
        """Return the entries of network.json that these refer to, after all variants."""
        ...


class WeightPieces:
    """Writes ``weights-000.bin`` and so on into a folder.

    Parameters
    ----------
    folder : where the files go
    most : bytes of a file
    """

    def __init__(self, folder: Path, most: int = PIECE_BYTES) -> None:
        self._folder = folder
        self._most = most
        self._known: dict[tuple[int, bytes], list[list[int]]] = {}
        self._file: BinaryIO | None = None
        self._sizes: list[int] = []
        self._digests: list[Any] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes)

    def describe(self, buffers: Sequence[RecordedBuffer]) -> Iterator[dict[str, Any]]:
        """Write the contents of buffers; yield ``data``, ``parts``, or nothing for zeros."""
        for buffer in buffers:
            contents = buffer.contents()
            buffer.parts.clear()
            if not contents.any():
                yield {}
            elif contents.size > INLINE_BYTES:
                yield {"parts": self.add(contents)}
            else:
                end = -(-(int(np.flatnonzero(contents)[-1]) + 1) // 4) * 4  # whole words
                yield {"data": base64.b64encode(contents[:end].tobytes()).decode()}

    def entries(self) -> dict[str, Any]:
        """Close the last file; return ``pieces``."""
        return {"pieces": self.close()}

    def add(self, contents: NDArray[np.uint8]) -> list[list[int]]:
        """Write bytes, unless the same ones are there; return the parts of pieces: [piece, offset, bytes] each."""
        raw = contents.data
        key = len(raw), hashlib.sha256(raw).digest()
        if key not in self._known:
            self._known[key] = self._write(raw)
        return self._known[key]

    def close(self) -> list[dict[str, Any]]:
        """Close the last file; return name, bytes and checksum of each."""
        if self._file is not None:
            self._file.close()
            self._file = None
        return [
            {"file": _name(number), "bytes": size, "sha256": digest.hexdigest()}
            for number, (size, digest) in enumerate(zip(self._sizes, self._digests, strict=True))
        ]

    def _write(self, contents: memoryview) -> list[list[int]]:
        parts: list[list[int]] = []
        at = 0
        while at < len(contents):
            file = self._with_room(min(len(contents) - at, ALIGNMENT))
            start = self._sizes[-1]
            part = contents[at : at + self._most - start]
            file.write(part)
            self._grow(part)
            parts.append([len(self._sizes) - 1, start, len(part)])
            at += len(part)
        return parts

    def _with_room(self, wanted: int) -> BinaryIO:
        """Return the last file at an aligned offset, or a new one if it is full."""
        if self._file is not None:
            padding = -self._sizes[-1] % ALIGNMENT
            if self._sizes[-1] + padding + wanted <= self._most:
                self._file.write(bytes(padding))
                self._grow(memoryview(bytes(padding)))
                return self._file
            self._file.close()
        self._file = (self._folder / _name(len(self._sizes))).open("wb")
        self._sizes.append(0)
        self._digests.append(hashlib.sha256())
        return self._file

    def _grow(self, part: memoryview) -> None:
        self._sizes[-1] += len(part)
        self._digests[-1].update(part)


def _name(number: int) -> str:
    return f"weights-{number:03}.bin"
