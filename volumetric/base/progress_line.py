"""One line that shows how far a run is, on a terminal or in a notebook; elsewhere nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from volumetric.base.notebook_cell import CellLine, in_notebook
from volumetric.base.progress import clock

_EVERY: Final = 0.1
"""Seconds between two versions of the line."""


def is_watched(stream: Any) -> bool:
    """Whether a person sees a stream as it is written: a terminal, or a cell of a notebook."""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty and isatty()) or in_notebook(stream)


class ProgressLine:
    """A reporter that overwrites one line of stderr, or of a notebook's cell, and leaves the last version.

    Parameters
    ----------
    text : returns the line of an event, or None for events that it does not show
    stream : output stream; None: stderr
    part : returns the share of the run that is done after an event, 0 … 1, for the bar of a notebook
    """

    def __init__(
        self,
        text: Callable[[Any], str | None],
        stream: TextIO | None = None,
        *,
        part: Callable[[Any], float | None] | None = None,
    ) -> None:
        self._text, self._stream, self._part_of = text, stream, part
        self._part: float | None = None
        self._cell: CellLine | None = None
        self._line, self._width, self._shown, self._began = "", 0, 0.0, time.monotonic()

    def start(self, step: int, epoch: int) -> None:
        """Begin to count the time."""
        self._line, self._width, self._shown, self._began = "", 0, 0.0, time.monotonic()
        self._cell = CellLine() if self._stream is None and in_notebook() else None

    def report(self, event: Any, /) -> None:
        """Show an event, if the line is older than a tenth of a second."""
        line = self._text(event)
        if line is None:
            return
        self._line = line
        if self._part_of is not None:
            self._part = self._part_of(event)
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
        if self._cell is not None:
            self._cell.show(line, None if end else self._part)
            return
        stream = self._stream or sys.stderr
        stream.write("\r" + line.ljust(self._width) + end)
        stream.flush()
        self._width = len(line)


def progress_lines(
    progress: bool | None,
    text: Callable[[Any], str | None],
    *,
    others: bool,
    call: str,
    part: Callable[[Any], float | None] | None = None,
) -> list[ProgressLine]:
    """Return the reporter of a progress line, or none.

    Parameters
    ----------
    progress : whether to show it; None: if stderr is watched and there are no other reporters
    text, part : see `ProgressLine`
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
    return [ProgressLine(text, part=part)] if shown else []
