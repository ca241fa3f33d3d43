"""History of a run: reporters write its events to files or to the log."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TextIO, TypeAlias

from volumetric.base import reporting
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import write_hint
from volumetric.base.reporting import event_fields
from volumetric.train.training_events import COLUMNS, EpochEvent, Event, StepEvent, TargetEvent

logger: logging.Logger = logging.getLogger(__name__)

Reporter: TypeAlias = reporting.Reporter[Event]
"""A reporter of training events."""


class FileReporter:
    """Appends a line for each event and flushes it, so that a crash loses nothing.

    Parameters
    ----------
    path : the file. A new run overwrites it; a resumed run keeps the lines before its starting point
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)
        self._file: TextIO | None = None

    def start(self, step: int, epoch: int) -> None:
        """Open the file; keep the lines before this point, or start an empty file at step 0."""
        try:
            lines = self._earlier(step, epoch) if step and self.path.exists() else []
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(f".{self.path.name}.tmp")
            temporary.write_text("".join(lines) or self._head(), encoding="utf-8", newline="")
            temporary.replace(self.path)
            self._file = self.path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.path}: {error.strerror or error}", hint=write_hint(self.path)
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is not a history file of this kind: {error}", hint="move it, or write to another file"
            ) from error

    def report(self, event: Any, /) -> None:
        """Write a line."""
        if self._file is not None:
            fields = {
                key: value for key, value in event_fields(event).items() if value != {}
            }  # events without nested values
            self._file.write(self._line(fields))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _earlier(self, step: int, epoch: int) -> list[str]:
        with self.path.open(encoding="utf-8", newline="") as file:
            lines = [line for line in file if line.endswith("\n")]  # a killed run may have left an incomplete line
        head = self._head()
        return [head] * bool(head) + [
            line for line in lines[bool(head) :] if self._is_before(self._read(line), step, epoch)
        ]

    def _is_before(self, fields: Mapping[str, Any], step: int, epoch: int) -> bool:
        """Whether an event is before the starting point."""
        if fields["event"] in (StepEvent.event, TargetEvent.event):
            return int(fields["step"]) <= step
        return fields["event"] == EpochEvent.event and int(fields["epoch"]) < epoch

    def _head(self) -> str:
        return ""

    def _line(self, fields: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def _read(self, line: str) -> dict[str, Any]:
        raise NotImplementedError


class JsonlReporter(FileReporter):
    """Writes one JSON object a line."""

    def _line(self, fields: Mapping[str, Any]) -> str:
        return json.dumps(fields) + "\n"

    def _read(self, line: str) -> dict[str, Any]:
        return json.loads(line)


class CsvReporter(FileReporter):
    """Writes comma-separated values with one header; missing values are empty.

    Nested events, as `TargetEvent`, are skipped.
    """

    columns: ClassVar[Sequence[str]] = COLUMNS

    def report(self, event: Any, /) -> None:
        """Write a line."""
        if not isinstance(event, TargetEvent):
            super().report(event)

    def _head(self) -> str:
        return ",".join(self.columns) + "\n"

    def _line(self, fields: Mapping[str, Any]) -> str:
        text = io.StringIO()
        cells = {key: json.dumps(value) if isinstance(value, Mapping) else value for key, value in fields.items()}
        csv.DictWriter(text, self.columns, lineterminator="\n").writerow(cells)
        return text.getvalue()

    def _read(self, line: str) -> dict[str, Any]:
        return dict(zip(self.columns, next(csv.reader([line])), strict=True))


class LogReporter:
    """Logs every n-th update, every epoch and the end at level INFO."""

    def __init__(self, every: int = 10) -> None:
        if every < 1:
            raise SpecError(f"every must be at least 1, got {every}", hint="every=1 logs every step")
        self._every = every

    def start(self, step: int, epoch: int) -> None:
        """Log the starting point."""
        logger.info("training from step %d, epoch %d", step, epoch)

    def report(self, event: Event, /) -> None:
        """Log an event."""
        if not isinstance(event, StepEvent | TargetEvent) or event.step % self._every == 0:
            logger.info("%s", event)

    def close(self) -> None:
        """Nothing to close."""
