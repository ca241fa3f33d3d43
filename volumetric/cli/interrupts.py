"""Ctrl-C as a request: what is being done ends well, and a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from volumetric.cli import console

if TYPE_CHECKING:
    from volumetric.generate import Stream

_LOOK = 0.1
"""Seconds from one look for signals to the next, while a line is typed."""


@contextmanager
def stop_on_interrupt(after: str) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop; the second one interrupts as usual.

    Parameters
    ----------
    after : what is finished first, as ``"this update"``
    """
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        console.note(f"stopping after {after}; Ctrl-C again stops at once")

    with _handling(handle):
        yield stop


class Stopped(KeyboardInterrupt):
    """Ctrl-C came while nothing was being done but waiting for input."""


class Stopping:
    """A request to stop, and whether it may end what is being done."""

    def __init__(self) -> None:
        self.asked = False
        self._waits = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let Ctrl-C end what is inside at once, by `Stopped`."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def handle(self, after: str) -> None:
        """Take one signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._waits:
            raise Stopped
        console.note(f"stopping after {after}; Ctrl-C again stops at once")


@contextmanager
def stop_between(stopping: Stopping, after: str) -> Iterator[None]:
    """Have Ctrl-C ask `stopping`: as `stop_on_interrupt`, but where input is waited for, it ends the waiting."""
    with _handling(lambda number, frame: stopping.handle(after)):
        yield


@contextmanager
def end_on_interrupt(stream: Stream) -> Iterator[None]:
    """Let Ctrl-C end `stream`, and nothing else, whenever it comes.

    A prompt that is still being read is interrupted where it stands (KeyboardInterrupt); later the stream ends before
    its next token. One that comes when the stream is at its end has nothing left to do.
    """

    def handle(number: int, frame: object) -> None:
        if not stream.begun:
            raise KeyboardInterrupt
        stream.cancel()

    with _handling(handle):
        yield


@contextmanager
def heard_while_typing() -> Iterator[None]:
    """Have `input` hear Ctrl-C whenever it comes.

    Python's line editing looks for signals where one ends its ``select`` on the terminal. One that comes after the
    prompt was written and before ``select`` began is noted, and looked at when the line is finished. A timer ends the
    waiting ten times a second.
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


@contextmanager
def _handling(handle: Callable[[int, object], None]) -> Iterator[None]:
    """Have `handle` called for Ctrl-C; only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
