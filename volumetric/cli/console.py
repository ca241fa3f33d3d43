"""stdout carries the result, stderr notes, progress on a terminal, and log records."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from volumetric.cli import stdio

if TYPE_CHECKING:
    from rich.status import Status

    from volumetric.generate.params import MergedParams

WORKERS = (
    "volumetric.devices.cpu.kernels.jit",
    "volumetric.devices.cpu.compile_operations",
    "volumetric.base.progress",
)
"""Loggers that report the compilation of kernels, and the progress of other work."""

UNBOUNDED = 100_000
"""Width of a table without a terminal."""
READABLE = 100
"""Width to which tables are folded without a terminal."""
_LEAST = 14
"""Least width of a folded column."""
_JOINTS = re.compile(r" (?=&&|\|\|)|(?<=,) (?=[A-Za-z_])")
"""Places to fold text without double spaces: before ``&&`` and ``||`` of clocks, and between names."""

NOTES = f"{__name__}.notes"
"""Logger of notes."""
_notes = logging.getLogger(NOTES)


def configure(*, verbose: bool, quiet: bool, debug: bool) -> None:
    """Set the level of stderr: warnings; with ``-v`` also choices and their reasons; with ``--quiet`` only errors."""
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING
    logger = logging.getLogger("volumetric")
    logger.handlers[:] = [StderrHandler()]
    logger.setLevel(level)
    # The first compilation takes seconds; a waiting user should see why.
    for always in (_notes, *map(logging.getLogger, WORKERS)):
        always.setLevel(level if quiet else min(level, logging.INFO))


def note(text: str) -> None:
    """Write one note to stderr, unless ``--quiet`` was given."""
    _notes.info("%s", text)


def notes_shown() -> bool:
    """Whether notes are shown: not with ``--quiet``."""
    return _notes.isEnabledFor(logging.INFO)


def explain_sampling(merged: MergedParams) -> None:
    """Log the sampling parameters in force and the source of each, with ``-v``."""
    logging.getLogger(__name__).info("sampling: %s", merged)


write: Callable[[str], None] = stdio.write  # write a part of the result at once, unchanged


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Write a JSON value and a line break to stdout; values without a JSON form are written as text."""
    write(json_text(value, indent=indent) + "\n")


def plural(count: int, name: str) -> str:
    """Return a number of things: ``1 tick``, ``2 ticks``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return a value as JSON for stdout, with escapes for characters that it cannot encode.

    A file or pipe of another encoding than UTF-8 gets escapes for all characters: JSON is UTF-8 (RFC 8259, 8.1).
    """
    text = json.dumps(value, indent=indent, default=str, ensure_ascii=False)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        text.encode(encoding if sys.stdout.isatty() or encoding.lower().startswith("utf") else "ascii")
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, default=str)
    return text


def read_all() -> str:
    """Read stdin to its end."""
    return sys.stdin.read()


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a spinner during slow work; only on a terminal."""
    if not _notes.isEnabledFor(logging.INFO) or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as shown, StderrHandler.waiting_in(shown, text):
        yield


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), fold: Sequence[str] = ()
) -> None:
    """Print a table to stdout; in full width unless that is a terminal, so that it works with grep and cut.

    Parameters
    ----------
    right : right-aligned columns
    fold : columns whose long text is folded, at double spaces or else between the parts of a clock or a list, so that
        the table is no wider than `READABLE` or the terminal if possible
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    with stdio.writing():
        shown = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED)
        for row in _fitted(columns, rows, fold, READABLE if shown.width == UNBOUNDED else shown.width):
            drawn.add_row(*row)
        shown.print(drawn)


def _fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], fold: Sequence[str], width: int
) -> Iterator[Sequence[str]]:
    """Yield the rows, with the columns in `fold` folded so that the table is `width` wide."""
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
"""Seconds between two progress lines about the same work, if stderr is a file."""


class StderrHandler(logging.Handler):
    """Writes ``warning: …`` lines to the current `sys.stderr`.

    A record whose attribute ``progress`` is a pair (done, all) is shown in a line that the next one replaces, or in the
    current spinner, until a record with the ``progress`` None. If stderr is not a terminal, progress is a line now and
    then; records with the attribute ``passing`` are skipped there, and leave no line on a terminal.
    """

    _spinner: ClassVar[Status | None] = None
    _spins: ClassVar[str] = ""
    """Text of the spinner without progress."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = 0
        """Length of the line that the next one replaces."""
        self._told = 0.0

    @classmethod
    @contextmanager
    def waiting_in(cls, spinner: Status, text: str) -> Iterator[None]:
        """Show progress in `spinner` within the context; `text` is its default text."""
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
