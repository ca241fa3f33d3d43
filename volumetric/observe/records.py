"""Observers that write a line for each event: to the log, or to a file of JSON lines."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TextIO

from volumetric.atomic import atomic_file
from volumetric.errors import CheckpointError, SpecError
from volumetric.observe.events import LayerEvent

logger = logging.getLogger(__name__)


class LogObserver:
    """Logs the events of every n-th step at level INFO."""

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}", hint="every=1 tells every step")
        self._every = every

    def observe(self, event: LayerEvent) -> None:
        """Log an event."""
        if event.step % self._every == 0:
            s = event.stats
            logger.info(
                "%s %d %s %s: min %.4g, mean %.4g, max %.4g, active %.1f %% of %d",
                *(event.mode, event.step, event.where, event.kind),
                *(s.min, s.mean, s.max, 100 * s.active, s.total),
            )

    def close(self) -> None:
        """Nothing to close."""


class JsonlObserver:
    """Appends one JSON object a line to a file, which is made when the first event comes.

    Parameters
    ----------
    path : file; lines that it has stay, but for those of updates that training makes again
    every : take the events of every n-th step

    Raises
    ------
    CheckpointError
        The file cannot be written.
    """

    def __init__(self, path: str | Path, every: int = 1) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}", hint="every=1 tells every step")
        self.path = Path(path)
        self._every = every
        self._file: TextIO | None = None

    def start(self, step: int) -> None:
        """Keep what the file tells of updates up to `step`; of a run that begins, nothing."""
        if not self.path.exists():
            return
        with self.path.open("rb") as old, atomic_file(self.path) as new:
            # A killed run may have left half a line.
            new.writelines(line for line in old if step and line.endswith(b"\n") and self._number(line) <= step)

    def _number(self, line: bytes) -> int:
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is no record of layers: {error}", hint="move it away, or write to another file"
            ) from None

    def observe(self, event: LayerEvent) -> None:
        """Write a line."""
        if event.step % self._every:
            return
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8")
            self._file.write(json.dumps(event.describe()) + "\n")
            self._file.flush()
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error.strerror or error}", hint="check space and rights"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
