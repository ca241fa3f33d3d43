"""Some of the damaged models of `benchmarks/hostile_input.py`, which tries ten thousand: all errors are our own."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks import hostile_input


@pytest.mark.thorough
@pytest.mark.timeout(120)
def test_damaged_files_raise_errors_of_this_package(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    models = hostile_input.Damaged(tmp_path)
    kinds: set[str] = set()
    for number in range(0, len(models.kinds), 2):
        name, call = models.attempt(number)
        kind, message = hostile_input.outcome_of(call)
        assert not kind.startswith("FOREIGN"), f"{name} #{number}: {kind} {message}"
        kinds.add(kind)
    assert {"ok", "CheckpointError"} <= kinds


@pytest.mark.thorough
def test_all_kinds_can_be_used_as_they_are(tmp_path: Path) -> None:
    """A kind that cannot be opened before it is damaged tries nothing."""
    models = hostile_input.Damaged(tmp_path)
    for kind in list(models.kinds)[1::6]:
        if models.files(kind):
            outcome, message = hostile_input.outcome_of(lambda kind=kind: models.kinds[kind].use(tmp_path / kind))
            asked = kind.startswith("guess") and outcome in ("CheckpointError", "GenerationError")
            assert outcome == "ok" or asked, (kind, message)


def test_all_templates_of_the_script_are_read() -> None:
    assert len(hostile_input.read_templates()) >= 200
