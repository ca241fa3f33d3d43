"""Reads the lines of a file that another process may still write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LONGEST_LINE: Final = 64 << 20
"""Bytes of a line from which on it is refused."""
_CHUNK: Final = 8 << 20


class GrowingLines:
    """Whole lines of a file that may grow, and may be replaced by another or a shorter one as a run is resumed.

    Parameters
    ----------
    path : the file, which need not exist yet

    Attributes
    ----------
    offset : bytes that were read so far
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self.offset: int = 0
        self._number = 0
        self._file_id: tuple[int, int] | None = None

    def replaced(self) -> bool:
        """Whether another file has taken the place of the one that was read, or it became shorter.

        The next lines are then its first ones.
        """
        try:
            about = self.path.stat()
        except OSError:
            return False
        other = self._file_id is not None and (about.st_dev, about.st_ino) != self._file_id
        if not other and about.st_size >= self.offset:
            return False
        self.offset, self._number, self._file_id = 0, 0, None
        return True

    def read(self) -> list[tuple[int, bytes]]:
        """Return (number, line) of new whole lines, without their ends: a part if there are many, none if none are new.

        Numbers begin with 1. A line that is still being written comes later.

        Raises
        ------
        OSError : the file cannot be read
        ValueError : a line is too long
        """
        with self.path.open("rb") as file:
            about = os.fstat(file.fileno())
            self._file_id = about.st_dev, about.st_ino
            file.seek(self.offset)
            data = file.read(_CHUNK)
            while data and b"\n" not in data[-_CHUNK:] and len(data) < LONGEST_LINE and (more := file.read(_CHUNK)):
                data += more
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= LONGEST_LINE:
            raise ValueError(f"line {self._number + 1} is longer than {LONGEST_LINE >> 20} MiB")
        lines = list(enumerate(data[:end].splitlines(), self._number + 1))
        self.offset += end
        self._number += len(lines)
        return lines
