"""stdout is the product, stderr the commentary: notes, progress on a terminal, log records."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from volumetric.cli import streams

if TYPE_CHECKING:
    from rich.status import Status

    from volumetric.generate.params import Merged

WORKERS = ("volumetric.devices.cpu.kernels.jit", "volumetric.devices.cpu.compiling", "volumetric.base.progress")
"""Loggers that tell when kernels are compiled because none were cached, how far that is, and how far other work is."""

UNBOUNDED = 100_000
"""Width of a table that no terminal limits."""
READABLE = 100
"""Width that tables keep to by folding the columns that may be folded, where no terminal has another."""
_LEAST = 14
"""Width of a folded column, at least."""
_JOINTS = re.compile(r" (?=&&|\|\|)|(?<=,) (?=[A-Za-z_])")
"""Where text is folded that has no parts with two spaces between them: before what joins clocks, and between names."""

NOTES = f"{__name__}.notes"
"""Logger of commentary."""
_notes = logging.getLogger(NOTES)


def configure(*, verbose: bool, quiet: bool, debug: bool) -> None:
    """Choose what stderr shows: warnings, with ``-v`` also what was chosen and why, with ``--quiet`` only errors."""
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING
    logger = logging.getLogger("volumetric")
    logger.handlers[:] = [StderrHandler()]
    logger.setLevel(level)
    # Compiling takes seconds, once; a person who waits wants to know why.
    for always in (_notes, *map(logging.getLogger, WORKERS)):
        always.setLevel(level if quiet else min(level, logging.INFO))


def note(text: str) -> None:
    """Write one line of commentary, unless ``--quiet`` was given."""
    _notes.info("%s", text)


def notes_shown() -> bool:
    """Whether commentary is wanted: not with ``--quiet``."""
    return _notes.isEnabledFor(logging.INFO)


def explain_sampling(merged: Merged) -> None:
    """Tell the parameters in force and where each came from, with ``-v``."""
    logging.getLogger(__name__).info("sampling: %s", merged)


write = streams.write  # a piece of the product, at once and as it is


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Write a JSON value as the product, and a line break; what JSON has no form for is written as text."""
    write(json.dumps(value, indent=indent, default=str) + "\n")


def read_all() -> str:
    """Read stdin to its end."""
    return sys.stdin.read()


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show that something takes its time; only on a terminal."""
    if not _notes.isEnabledFor(logging.INFO) or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as shown, StderrHandler.waiting_in(shown, text):
        yield


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), fold: Sequence[str] = ()
) -> None:
    """Print a table to stdout; where that is not a terminal its full width, so that it can be searched and cut.

    Parameters
    ----------
    right : columns whose text stands at the right
    fold : columns whose long text is put on several lines, between parts with two spaces between them or else between
        the parts of a clock or a list, so that the table is no wider than `READABLE` or the terminal if it can be
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    with streams.writing():
        shown = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)
        for row in _fitted(columns, rows, fold, READABLE if shown.width == UNBOUNDED else shown.width):
            drawn.add_row(*row)
        shown.print(drawn)


def _fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], fold: Sequence[str], width: int
) -> Iterator[Sequence[str]]:
    """Yield the rows, with text of columns that may be folded on as many lines as make the table `width` wide."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    over = sum(widths) + 3 * len(columns) - width  # a space at each side of a cell, and one between columns
    limits: dict[int, int] = {}
    for index in sorted(map(columns.index, fold), key=lambda index: -widths[index]):
        if over > 0:
            limits[index] = max(min(_LEAST, widths[index]), widths[index] - over)
            over -= widths[index] - limits[index]
    for row in rows:
        yield [_lines(cell, limits[i]) if i in limits else cell for i, cell in enumerate(row)]


def _lines(text: str, width: int) -> str:
    apart = "  " in text
    lines: list[str] = []
    for part in text.split("  ") if apart else _JOINTS.split(text):
        joined = f"{lines[-1]}{'  ' if apart else ' '}{part}" if lines else part
        if lines and len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return "\n".join(lines)


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
