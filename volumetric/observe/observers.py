"""Observers: one line per event in the log or a file, or aggregates of the last steps, also over HTTP."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.observe.layer_events import LayerEvent
from volumetric.observe.local_server import LOCALHOST, LocalServer

logger: logging.Logger = logging.getLogger(__name__)


class LogObserver:
    """Logs the events of every n-th step at level INFO."""

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}", hint="every=1 logs every step")
        self._every = every

    def wants(self, step: int) -> bool:
        """Whether this observer records a step."""
        return step % self._every == 0

    def observe(self, event: LayerEvent) -> None:
        """Log an event."""
        if self.wants(event.step):
            s = event.stats
            logger.info(
                "%s %d %s %s: min %.4g, mean %.4g, max %.4g, active %.1f %% of %d",
                *(event.mode, event.step, event.where, event.kind),
                *(s.min, s.mean, s.max, 100 * s.active, s.total),
            )

    def close(self) -> None:
        """Nothing to close."""


class JsonlObserver:
    """Appends one JSON object per line to a file, which is created at the first event.

    Parameters
    ----------
    path : file; existing lines stay, except those of updates that a resumed training repeats
    every : write the events of every n-th step

    Raises
    ------
    CheckpointError
        The file cannot be written.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}", hint="every=1 writes every step")
        self.path: Path = Path(path)
        self._every = every
        self._file: TextIO | None = None

    def start(self, step: int) -> None:
        """Remove lines of updates after `step` from the file; all lines if `step` is 0."""
        if not self.path.exists():
            return
        with self.path.open("rb") as old, atomic_file(self.path) as new:
            # A killed run may have left an incomplete line.
            new.writelines(line for line in old if step and line.endswith(b"\n") and self._number(line) <= step)

    def _number(self, line: bytes) -> int:
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is not a record of layers: {error}", hint="move it away, or write to another file"
            ) from None

    def wants(self, step: int) -> bool:
        """Whether this observer records a step."""
        return step % self._every == 0

    def observe(self, event: LayerEvent) -> None:
        """Write a line."""
        if not self.wants(event.step):
            return
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8")
            self._file.write(json.dumps(event.describe()) + "\n")
            self._file.flush()
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error.strerror or error}", hint="check disk space and permissions"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class WindowObserver:
    """Aggregates over a window of steps: minimum, maximum, mean of means and mean of active fractions.

    Parameters
    ----------
    size : number of steps in the window, for each layer and direction
    """

    def __init__(self, size: int = 100) -> None:
        if size < 1:
            raise SpecError(f"a window must have at least 1 step, got {size}")
        self._size = size
        self._windows: dict[tuple[str, str, str, str], deque[LayerEvent]] = {}
        self._lock = threading.Lock()  # a server thread reads while training writes

    def observe(self, event: LayerEvent) -> None:
        """Store an event; a full window drops its oldest one."""
        key = (event.model, event.mode, event.where, event.kind)
        with self._lock:
            self._windows.setdefault(key, deque(maxlen=self._size)).append(event)

    def aggregates(self) -> list[LayerEvent]:
        """Return the aggregated event of each layer and direction, with the newest step."""
        with self._lock:
            windows = [list(window) for window in self._windows.values()]
        return [_aggregate(window) for window in windows]

    def describe(self) -> list[dict[str, Any]]:
        """Return the aggregates as JSON data."""
        return [event.describe() for event in self.aggregates()]

    def close(self) -> None:
        """Nothing to close."""


def _aggregate(window: list[LayerEvent]) -> LayerEvent:
    """Return the last event with the statistics of all; each step has the same weight, whatever its number of rows."""
    stats = [event.stats for event in window]
    together = replace(
        stats[-1],
        min=float(np.min([s.min for s in stats])),
        max=float(np.max([s.max for s in stats])),
        mean=float(np.mean([s.mean for s in stats])),
        active=float(np.mean([s.active for s in stats])),
        total=sum(s.total for s in stats),
    )
    return replace(window[-1], stats=together)


class HttpObserver:
    """Serves ``GET /`` (aggregates over the window) and ``GET /latest`` (the newest event of each layer).

    Parameters
    ----------
    port : TCP port; 0 takes a free one, see `address`
    window : number of steps in the aggregates
    host : address to listen on; only this machine can reach the default

    Raises
    ------
    DeviceError
        The port cannot be listened on.
    """

    def __init__(self, port: int = 0, *, window: int = 100, host: str = LOCALHOST) -> None:
        self._window, self._latest = WindowObserver(window), WindowObserver(1)
        pages = {"/": self._window.describe, "/latest": self._latest.describe}
        self._server = LocalServer(pages, port=port, host=host)

    @property
    def address(self) -> str:
        """URL of the server, such as ``http://127.0.0.1:40123``."""
        return self._server.address

    def observe(self, event: LayerEvent) -> None:
        """Store an event."""
        self._window.observe(event)
        self._latest.observe(event)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
