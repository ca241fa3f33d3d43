"""The output of a notebook's cell: whether there is one, one line that replaces itself, and the stop button."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

_MARGIN: Final = "margin:2px 0;font-family:var(--jp-code-font-family,monospace);font-size:.9em"


def in_notebook(stream: Any = None) -> bool:
    """Whether what is written to `stream` (None: stderr) goes into a cell of a notebook."""
    return type(sys.stderr if stream is None else stream).__module__.partition(".")[0] == "ipykernel"


class CellLine:
    """One line of a cell's output, which each `show` replaces: a notebook's file holds the last version alone."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str, part: float | None = None) -> None:
        """Replace the line.

        Parameters
        ----------
        part : share of the work that is done, 0 … 1, for a bar before the line; None: no bar
        """
        from html import escape

        from IPython.display import display

        bar = ""
        if part is not None:
            bar = f'<progress value="{part:.4f}" max="1" style="width:10em;vertical-align:middle"></progress>&ensp;'
        page = f'<div style="{_MARGIN}">{bar}<span style="white-space:pre">{escape(line)}</span></div>'
        bundle = {"text/plain": line, "text/html": page}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


_work: Final[list[CellLine]] = []
"""The line of the work that goes on, if there is one, see `report_work`."""
_lock: Final = threading.Lock()


def report_work(logger: logging.Logger, text: str, done: tuple[int, int] | None, *, passing: bool = False) -> None:
    """Log the progress of some work, and show it as a line that replaces itself, if this is a notebook.

    Parameters
    ----------
    done : items done, and all; None: the work has ended, or its items are not counted
    passing : the record is for a line that is overwritten, not for files
    """
    logger.info("%s", text, extra={"progress": done, "passing": passing}, stacklevel=2)
    if in_notebook():
        with _lock:
            line = _work.pop() if _work else CellLine()
            line.show(text, None if done is None or not done[1] else min(done[0] / done[1], 1.0))
            _work.extend([] if done is None else [line])


@contextmanager
def handle_interrupts(handle: Callable[[int, object], None]) -> Iterator[None]:
    """Call `handle` for Ctrl-C, or the stop button of a notebook; in the main thread alone, as others cannot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def request_stop(note: Callable[[], object]) -> Iterator[threading.Event]:
    """Turn the first interrupt into a request to stop, and call `note`; the second one interrupts as usual."""
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        note()

    with handle_interrupts(handle):
        yield stop


@contextmanager
def stop_button(stop: Callable[[], bool] | None) -> Iterator[Callable[[], bool]]:
    """Yield `stop` (None: never), which in a notebook is also true once its stop button was pressed."""
    asked = stop or (lambda: False)
    if not in_notebook():
        yield asked
        return
    with request_stop(lambda: None) as pressed:
        yield lambda: pressed.is_set() or asked()
