"""A small model and a way to run verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.generate.letters import write_letters
from volumetric.cli import main


@pytest.fixture(scope="session")
def letters(tmp_path_factory) -> str:
    """Directory of a language model that knows the alphabet."""
    return str(write_letters(tmp_path_factory.mktemp("letters")))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of the test's own, to which runs write."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run a verb: exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call
