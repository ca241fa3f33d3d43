"""Ctrl-C as a request: what is being done ends well, and a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from volumetric.cli import console


@contextmanager
def stop_on_interrupt(after: str) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop; the second one interrupts as usual.

    Parameters
    ----------
    after : what is finished first, as ``"this update"``
    """
    asked = threading.Event()

    def handle(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        console.note(f"stopping after {after}; Ctrl-C again stops at once")

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
