"""Log records as lines on stderr; those that tell how far something is as one line that changes."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.status import Status

EVERY = 5.0
"""Seconds between two lines about the same work, where stderr is a file."""


class StderrHandler(logging.Handler):
    """Writes ``warning: …`` lines to whatever stderr is at that moment.

    A record whose attribute ``progress`` is a pair (done, all) is shown in a line that the next one replaces, or in the
    spinner that is shown already, until one comes whose ``progress`` is None. Where stderr is no terminal, a line now
    and then must do, and nothing for a record that is ``passing``, which leaves no line on a terminal either.
    """

    _spinner: ClassVar[Status | None] = None
    _spins: ClassVar[str] = ""
    """What the spinner says where there is no progress."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = 0
        """Characters of the line that will be replaced."""
        self._told = 0.0

    @classmethod
    @contextmanager
    def waiting_in(cls, spinner: Status, text: str) -> Iterator[None]:
        """Show progress in `spinner` meanwhile, which says `text` otherwise."""
        cls._spinner, cls._spins = spinner, text
        try:
            yield
        finally:
            cls._spinner = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        text = record.getMessage()
        passing = getattr(record, "passing", False)
        if getattr(record, "progress", None):
            self._update(text, passing=passing)
            return
        if self._spinner is not None and hasattr(record, "progress"):
            self._spinner.update(self._spins)
        if passing:
            self._clear()
            return
        prefix = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        self._clear()
        print(prefix + text, file=sys.stderr, flush=True)

    def _update(self, text: str, *, passing: bool) -> None:
        if self._spinner is not None:
            self._spinner.update(f"{text}…")
        elif sys.stderr.isatty():
            self._clear()
            print(text, end="", file=sys.stderr, flush=True)
            self._shown = len(text)
        elif not passing and time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._shown:
            print("\r" + " " * self._shown + "\r", end="", file=sys.stderr)
            self._shown = 0
