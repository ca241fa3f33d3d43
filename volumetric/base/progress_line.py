"""One line that shows how far a run is, on a terminal or in a notebook; elsewhere nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from volumetric.base.progress import clock

_EVERY: Final = 0.1
"""Seconds between two versions of the line."""


def is_watched(stream: Any) -> bool:
    """Whether a person sees a stream as it is written: a terminal, or a cell of a notebook."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) or type(stream).__module__.partition(".")[0] == "ipykernel"


class ProgressLine:
    """A reporter that overwrites one line of stderr, and leaves the last version.

    Parameters
    ----------
    text : returns the line of an event, or None for events that it does not show
    stream : output stream; None: stderr
    """

    def __init__(self, text: Callable[[Any], str | None], stream: TextIO | None = None) -> None:
        self._text, self._stream = text, stream
        self._line, self._width, self._shown, self._began = "", 0, 0.0, time.monotonic()

    def start(self, step: int, epoch: int) -> None:
        """Begin to count the time."""
        self._line, self._width, self._shown, self._began = "", 0, 0.0, time.monotonic()

    def report(self, event: Any, /) -> None:
        """Show an event, if the line is older than a tenth of a second."""
        line = self._text(event)
        if line is None:
            return
        self._line = line
        now = time.monotonic()
        if now - self._shown >= _EVERY:
            self._shown = now
            self._write(f"{line}  {clock(now - self._began)}", "")

    def close(self) -> None:
        """Show the last event, and end the line."""
        if self._line:
            self._write(f"{self._line}  {clock(time.monotonic() - self._began)}", "\n")
        self._line = ""

    def _write(self, line: str, end: str) -> None:
        stream = self._stream or sys.stderr
        stream.write("\r" + line.ljust(self._width) + end)
        stream.flush()
        self._width = len(line)


def progress_lines(
    progress: bool | None, text: Callable[[Any], str | None], *, others: bool, call: str
) -> list[ProgressLine]:
    """Return the reporter of a progress line, or none.

    Parameters
    ----------
    progress : whether to show it; None: if stderr is watched and there are no other reporters
    text : see `ProgressLine`
    others : whether the run has other reporters
    call : name of the function, for errors

    Raises
    ------
    SpecError : `progress` is no truth value
    """
    if progress is not None and not isinstance(progress, bool | int | float):
        from volumetric.base.errors import SpecError

        raise SpecError(f"{call}: progress must be True or False, got {progress!r:.60}", hint="progress=False is quiet")
    shown = is_watched(sys.stderr) and not others if progress is None else bool(progress)
    return [ProgressLine(text)] if shown else []
