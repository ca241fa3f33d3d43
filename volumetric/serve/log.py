"""The log of a server: every line is a JSON object, whichever logger writes it."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

ACCESS: Final = "volumetric.serve.access"
"""Logger whose records are JSON objects already, one for each request."""
_LOGGERS: Final = ("volumetric", "uvicorn.error")
request_id: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
"""Id of the current request."""


class JsonHandler(logging.Handler):
    """Writes records to the current `sys.stderr`."""

    def __init__(self) -> None:
        super().__init__()
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; skip progress records, which a terminal would overwrite."""
        if getattr(record, "passing", False):
            return
        try:
            sys.stderr.write(self._line(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        if record.name == ACCESS:
            return record.getMessage()
        fields: dict[str, object] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if (id := request_id.get()) is not None:
            fields["id"] = id
        if record.exc_info:
            fields["error"] = self._formatter.formatException(record.exc_info)
        return json.dumps(fields)


def stamp(seconds: float | None = None) -> str:
    """Format a time for the log: Unix seconds, or now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@contextmanager
def json_lines(apart: Collection[str] = ()) -> Iterator[None]:
    """Format all log records in the context as JSON objects, except those of loggers `apart`."""
    handler = JsonHandler()
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [list(logger.handlers) for logger in loggers]
    notes = [(logging.getLogger(name), logging.getLogger(name).propagate) for name in apart]
    try:
        for logger in loggers:
            logger.handlers[:] = [handler]
        for logger, _ in notes:
            logger.handlers[:] = before[0]
            logger.propagate = False
        yield
    finally:
        for logger, handlers in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
        for logger, propagates in notes:
            logger.handlers[:] = []
            logger.propagate = propagates
