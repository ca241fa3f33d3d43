"""Every error of the package can say what to do next."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from volumetric.base import errors
from volumetric.base.hints import path_hint

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.VolumetricError)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not errors.VolumetricError])
def test_an_error_without_a_hint_of_its_own_gives_general_advice(kind: type[errors.VolumetricError]) -> None:
    assert kind("it failed").hint == kind.advice
    if kind.advice is None:  # the text says what was expected, and no sentence for all would say more
        assert issubclass(kind, errors.SpecError)
    assert kind("it failed", hint="mend it").hint == "mend it"


def test_a_traceback_shows_the_hint() -> None:
    error = errors.VolumetricError("it failed", hint="mend it")
    assert traceback.format_exception(error)[-2:] == [
        "volumetric.base.errors.VolumetricError: it failed\n",
        "hint: mend it\n",
    ]


def test_a_file_that_cannot_be_opened_is_looked_for(tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.csv").touch(0o600)
    assert path_hint(tmp_path / "data" / "row.csv") == "did you mean 'rows.csv'?"
    assert path_hint(tmp_path / "dta" / "rows.csv") == "did you mean 'data'?"
    assert path_hint(tmp_path / "data" / "x" / "y") == f"there is no 'x' in {tmp_path / 'data'}"
    assert path_hint(tmp_path / "data" / "rows.csv") == "it is there, a file with permissions -rw-------"
    assert path_hint(tmp_path / "data" / "rows.csv" / "x").startswith("no file can have this name")
    assert path_hint("a\0b").startswith("there is no 'a\\x00b' in ")
    assert path_hint("a" * 5000).startswith("no file can have this name")
