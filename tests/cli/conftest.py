"""A small model and a way to run verbs. The command line sets up logging, which other tests must not see."""

from __future__ import annotations

import logging

import pytest

from tests.generate.letters import write_letters
from volumetric.cli import console, main


@pytest.fixture(autouse=True)
def restore_logging():
    loggers = [logging.getLogger(name) for name in ("volumetric", f"{console.__name__}.notes", *console.WORKERS)]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture(scope="session")
def letters(tmp_path_factory) -> str:
    """Directory of a language model that knows the alphabet."""
    return str(write_letters(tmp_path_factory.mktemp("letters")))


@pytest.fixture
def run(capsys):
    """Run a verb: exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call
