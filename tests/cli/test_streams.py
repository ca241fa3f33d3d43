"""Standard streams that are closed, full, or whose reader has gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import volumetric

ROOT = Path(volumetric.__file__).parents[1]
FULL = Path("/dev/full")


def shell(redirected: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a shell."""
    command = f"set -o pipefail; {sys.executable} -m volumetric {redirected}"
    return subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["--version", "devices --json"])
def test_a_closed_stdout_is_told_as_such(verb):
    done = shell(f"{verb} >&-")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: cannot write to stdout: Bad file descriptor"
    assert "defect" not in done.stderr
    assert "ignored" not in done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_told_as_such():
    done = shell(f"devices --json > {FULL}")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "error: cannot write to stdout: No space left on device",
    )


@pytest.mark.thorough
def test_a_reader_that_has_gone_wants_to_hear_nothing():
    done = shell("devices | true")
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_stderr_does_not_move_its_text_to_stdout():
    done = shell("nonsense 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.thorough
def test_a_closed_stdin_is_empty():
    done = shell("generate x -p - <&-")
    assert done.returncode == 1
    assert done.stderr.startswith("error: there is no file or directory")
