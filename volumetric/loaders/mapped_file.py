"""Read-only memory map of a model file, whose pages can be released after use."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint
from volumetric.loaders.regular_file import open_regular

_MAPPED_AROUND: Final = 1 << 16
"""Bytes that Linux maps around a fault, aligned to this size (``fault_around_bytes``)."""


class MappedFile:
    """A whole file mapped into memory, read-only.

    The mapping stays alive as long as any array from `view`, so views need no copy before this object is deleted.

    Parameters
    ----------
    path : path-like
        An existing file of at least one byte.

    Attributes
    ----------
    path : Path
    size : int
        Bytes in the file when it was opened.
    buffer : mmap.mmap
        For ``struct.unpack_from`` and slicing.

    Raises
    ------
    CheckpointError
        The file cannot be opened, is not a regular file or is empty.
    """

    __slots__ = ("_bytes", "buffer", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)
        try:
            with open_regular(self.path) as handle:
                self.size: int = os.fstat(handle.fileno()).st_size
                if self.size == 0:
                    raise CheckpointError(f"{self.path} is empty", hint="download or export the file again")
                self.buffer: mmap.mmap = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            if isinstance(error, CheckpointError):
                raise
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CheckpointError(f"cannot open {self.path}: {reason}", hint=path_hint(self.path)) from error
        self._bytes = np.frombuffer(self.buffer, np.uint8)

    def view(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Bytes ``start … stop-1`` as a read-only array, without copying."""
        return self._bytes[start:stop]

    def release(self, start: int, stop: int) -> None:
        """Drop the pages of bytes ``start … stop-1`` from this process; reading maps them again.

        Neighbouring pages that a read of these bytes has mapped are dropped, too: this is safe, since the map is a
        read-only image of the file.
        """
        if stop <= start or not hasattr(mmap, "MADV_DONTNEED"):
            return
        step = max(_MAPPED_AROUND, mmap.PAGESIZE)
        first, last = start - start % step, min(stop + -stop % step, self.size)
        self.buffer.madvise(mmap.MADV_DONTNEED, first, last - first)
