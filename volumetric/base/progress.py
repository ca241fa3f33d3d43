"""Progress of long work on tensors and files, as log records; handlers decide who sees them. A notebook shows it."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Final, Self

from volumetric.base.notebook_cell import report_work

logger: logging.Logger = logging.getLogger(__name__)

EVERY: Final = 0.2
"""Seconds between records, and from the start to the first one: short work reports nothing."""


class WorkMeter:
    """Counts items and bytes of some work; reports progress and the remaining time.

    Each record has an attribute ``progress``: (done, all), and None in the record that ends the work or reports its
    failure. Both have ``passing``: they are for a terminal line that is overwritten, not for log files.

    Parameters
    ----------
    what : description of the work, for example ``"writing model.gguf"``
    total : items; 0 if only bytes are counted
    unit : name of an item
    nbytes : bytes of all items, may grow; 0 if bytes are not counted
    """

    def __init__(self, what: str, total: int, *, unit: str = "tensor", nbytes: int = 0) -> None:
        self.what: str = what
        self.total: int = total
        self.unit: str = unit
        self.nbytes: int = nbytes
        self._pieces = self._bytes = 0
        self._start = self._last = time.monotonic()
        self._told = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._told:
            seconds = time.monotonic() - self._start
            report_work(logger, f"{self.what}: {seconds:.1f} s", None, passing=True)

    def step(self, nbytes: int = 0, *, pieces: int = 1) -> None:
        """Count finished items and their bytes. Thread-safe."""
        with self._lock:
            self._pieces += pieces
            self._bytes += nbytes
            now = time.monotonic()
            if now - self._last < EVERY:
                return
            self._last, self._told = now, True
            text, done = self._text(now - self._start), (self._pieces, self.total)
        report_work(logger, text, done, passing=True)

    def _text(self, seconds: float) -> str:
        parts = [f"{self.unit} {min(self._pieces, self.total)} of {self.total}"] if self.total else []
        part = self._pieces / max(self.total, 1)
        if self.nbytes:
            parts.append(f"{byte_size(self._bytes)} of {byte_size(self.nbytes)}")
            part = self._bytes / self.nbytes
        if 0 < part < 1:
            parts.append(f"{clock(seconds / part - seconds)} left")
        return f"{self.what}: {', '.join(parts)}" if parts else self.what


def byte_size(nbytes: float) -> str:
    """Format bytes in binary units: ``"85.5 MiB"``."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} GiB"


def clock(seconds: float) -> str:
    """Format a time: ``"1:02:03"``, ``"2:03"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
