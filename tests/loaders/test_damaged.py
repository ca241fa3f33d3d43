"""Some of the damaged models of `benchmarks/hostile_input.py`, which tries ten thousand: all errors are our own."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_input.py"


@pytest.fixture(scope="module")
def hostile() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("hostile_input", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.path.insert(0, str(SCRIPT.parent))  # its other files stand beside it
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_damaged_files_raise_errors_of_this_package(
    hostile: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    models = hostile.Damaged(tmp_path)
    kinds: set[str] = set()
    for number in range(0, len(models.kinds), 2):
        name, call = models.attempt(number)
        kind, message = hostile.outcome_of(call)
        assert not kind.startswith("FOREIGN"), f"{name} #{number}: {kind} {message}"
        kinds.add(kind)
    assert {"ok", "CheckpointError"} <= kinds


@pytest.mark.thorough
def test_all_kinds_can_be_used_as_they_are(hostile: Any, tmp_path: Path) -> None:
    """A kind that cannot be opened before it is damaged tries nothing."""
    models = hostile.Damaged(tmp_path)
    for kind in list(models.kinds)[1::6]:
        if models.files(kind):
            outcome, message = hostile.outcome_of(lambda kind=kind: models.kinds[kind].use(tmp_path / kind))
            asked = kind.startswith("guess") and outcome in ("CheckpointError", "GenerationError")
            assert outcome == "ok" or asked, (kind, message)


def test_all_templates_of_the_script_are_read(hostile: Any) -> None:
    assert len(hostile.read_templates()) >= 200
