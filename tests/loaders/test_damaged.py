"""Some of the damaged models of `benchmarks/hostile_input.py`, which tries ten thousand: all errors are our own."""

from __future__ import annotations

import importlib.util
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
    spec.loader.exec_module(module)
    sys.path[:] = before  # it finds the package beside itself
    return module


@pytest.mark.timeout(120)
def test_damaged_files_raise_errors_of_this_package(hostile: Any, tmp_path: Path) -> None:
    readers = hostile.Readers(tmp_path)
    kinds: set[str] = set()
    for number in range(len(readers.files)):
        name, source = readers.mutated(number)
        kind, message = hostile.outcome_of(lambda source=source: hostile.use(source))
        assert not kind.startswith("FOREIGN"), f"{name} #{number}: {kind} {message}"
        kinds.add(kind)
    assert {"ok", "CheckpointError"} <= kinds


def test_all_templates_of_the_script_are_read(hostile: Any) -> None:
    assert len(hostile.read_templates()) >= 200
