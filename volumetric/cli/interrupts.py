"""Ctrl-C as a request to stop: the current work is finished, and a second Ctrl-C stops at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from volumetric.base.notebook_cell import handle_interrupts, request_stop
from volumetric.cli import console

if TYPE_CHECKING:
    from volumetric.generate import Stream

_LOOK = 0.1
"""Seconds between two checks for signals while a line is typed."""


@contextmanager
def stop_on_interrupt(after: str) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop; the second one interrupts as usual.

    Parameters
    ----------
    after : the work that is finished first, such as ``"this update"``
    """
    with request_stop(lambda: _note_within_signal(f"stopping after {after}; Ctrl-C again stops at once")) as stop:
        yield stop


def _note_within_signal(text: str) -> None:
    """Write a note. Python forbids it where the signal comes while stderr is being written; the system does not."""
    try:
        console.note(text)
    except RuntimeError:
        os.write(2, f"{text}\n".encode())


class Stopped(KeyboardInterrupt):
    """Ctrl-C was pressed while the program waited for input."""


class StopRequest:
    """A request to stop, and whether it may interrupt at once."""

    def __init__(self) -> None:
        self.requested: bool = False
        self._waits = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Raise `Stopped` at once on Ctrl-C within the context."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def handle(self, after: str) -> None:
        """Handle a signal."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._waits:
            raise Stopped
        _note_within_signal(f"stopping after {after}; Ctrl-C again stops at once")


@contextmanager
def stop_between(stopping: StopRequest, after: str) -> Iterator[None]:
    """Connect Ctrl-C to `stopping`: like `stop_on_interrupt`, but it also interrupts waiting for input."""
    with handle_interrupts(lambda number, frame: stopping.handle(after)):
        yield


@contextmanager
def end_on_interrupt(stream: Stream) -> Iterator[None]:
    """Let Ctrl-C end only `stream`.

    During prompt processing it raises KeyboardInterrupt at once; later the stream ends before its next token. At the
    end of the stream it has no effect.
    """

    def handle(number: int, frame: object) -> None:
        if not stream.begun:
            raise KeyboardInterrupt
        stream.cancel()

    with handle_interrupts(handle):
        yield


@contextmanager
def interruptible_input() -> Iterator[None]:
    """Make `input` react to Ctrl-C at any time.

    Python's line editing checks for signals only if one interrupts its ``select`` on the terminal. A signal between the
    output of the prompt and the start of ``select`` would be handled only after the line. A timer interrupts ``select``
    ten times a second.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
