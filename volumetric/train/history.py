"""History: reporters write the events of a run to files or to the log."""

from __future__ import annotations

import csv
import io
import json
import logging
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from volumetric import reporting
from volumetric.errors import CheckpointError, SpecError
from volumetric.train.events import COLUMNS, EpochEvent, Event, StepEvent, record

logger = logging.getLogger(__name__)

Reporter: TypeAlias = reporting.Reporter[Event]
"""Takes the events of training."""


class _FileReporter:
    """Appends a line for each event and flushes it, so that a run can be watched and a crash loses nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: TextIO | None = None

    def start(self, step: int, epoch: int) -> None:
        """Open the file; keep what an earlier run wrote before this point, or start anew at step 0."""
        try:
            kept = self._earlier(step, epoch) if step and self.path.exists() else []
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(f".{self.path.name}.tmp")
            temporary.write_text("".join(kept) or self._head(), encoding="utf-8", newline="")
            temporary.replace(self.path)
            self._file = self.path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise CheckpointError(f"cannot write {self.path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is no history of this kind: {error}", hint="move it away, or write to another file"
            ) from error

    def report(self, event: Event) -> None:
        """Write a line."""
        if self._file is not None:
            self._file.write(self._line(record(event)))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _earlier(self, step: int, epoch: int) -> list[str]:
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in file if line.endswith("\n")]  # a killed run may have left half a line
        head = self._head()
        return [head] * bool(head) + [line for line in lines[bool(head) :] if _is_before(self._read(line), step, epoch)]

    def _head(self) -> str:
        return ""

    def _line(self, fields: dict[str, Any]) -> str:
        raise NotImplementedError

    def _read(self, line: str) -> dict[str, Any]:
        raise NotImplementedError


def _is_before(fields: dict[str, Any], step: int, epoch: int) -> bool:
    if fields["event"] == StepEvent.event:
        return int(fields["step"]) <= step
    return fields["event"] == EpochEvent.event and int(fields["epoch"]) < epoch


class JsonlReporter(_FileReporter):
    """Writes one JSON object a line."""

    def _line(self, fields: dict[str, Any]) -> str:
        return json.dumps(fields) + "\n"

    def _read(self, line: str) -> dict[str, Any]:
        return json.loads(line)


class CsvReporter(_FileReporter):
    """Writes comma-separated values with one header; a column that an event lacks is empty."""

    def _head(self) -> str:
        return ",".join(COLUMNS) + "\n"

    def _line(self, fields: dict[str, Any]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS, lineterminator="\n").writerow(fields)
        return text.getvalue()

    def _read(self, line: str) -> dict[str, Any]:
        return dict(zip(COLUMNS, next(csv.reader([line])), strict=True))


class LogReporter:
    """Logs every n-th update and every epoch at level INFO."""

    def __init__(self, every: int = 10) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}")
        self._every = every

    def start(self, step: int, epoch: int) -> None:
        """Say where training begins."""
        logger.info("training from step %d, epoch %d", step, epoch)

    def report(self, event: Event) -> None:
        """Log an event."""
        if isinstance(event, StepEvent):
            if event.step % self._every == 0:
                logger.info("step %d: loss %.6g, gradient norm %.4g", event.step, event.loss, event.gradient_norm)
        elif isinstance(event, EpochEvent):
            validation = "" if event.validation_loss is None else f", validation loss {event.validation_loss:.6g}"
            logger.info("epoch %d: loss %.6g%s", event.epoch, event.loss, validation)
        else:
            logger.info("stopped at step %d: %s", event.step, event.where or event.reason)

    def close(self) -> None:
        """Nothing to close."""
