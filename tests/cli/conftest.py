"""The command line sets up logging for its process; other tests must not see that."""

from __future__ import annotations

import logging

import pytest

from volumetric.cli import console


@pytest.fixture(autouse=True)
def restore_logging():
    loggers = [logging.getLogger(name) for name in ("volumetric", f"{console.__name__}.notes", console.COMPILER)]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers
