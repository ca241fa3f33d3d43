"""An observer that keeps the last steps of every layer and tells what they have in common."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.errors import SpecError
from volumetric.observe.events import LayerEvent


class WindowObserver:
    """Aggregates over a window of steps: least minimum, greatest maximum, mean of means and of active fractions.

    Parameters
    ----------
    size : steps of the window, for each layer and direction
    """

    def __init__(self, size: int = 100) -> None:
        if size < 1:
            raise SpecError(f"a window has at least 1 step, got {size}")
        self._size = size
        self._windows: dict[tuple[str, str, str, str], deque[LayerEvent]] = {}
        self._lock = threading.Lock()  # a server reads while training writes

    def observe(self, event: LayerEvent) -> None:
        """Keep an event; the oldest one of a full window goes."""
        key = (event.model, event.mode, event.where, event.kind)
        with self._lock:
            self._windows.setdefault(key, deque(maxlen=self._size)).append(event)

    def aggregates(self) -> list[LayerEvent]:
        """Return one event for each layer and direction that stands for its whole window, with the newest step."""
        with self._lock:
            windows = [list(window) for window in self._windows.values()]
        return [_aggregate(window) for window in windows]

    def describe(self) -> list[dict[str, Any]]:
        """Return the aggregates as JSON data."""
        return [event.describe() for event in self.aggregates()]

    def close(self) -> None:
        """Nothing to close."""


def _aggregate(window: list[LayerEvent]) -> LayerEvent:
    """Return the last event with the statistics of all; each step weighs the same, whatever its number of rows."""
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
