"""Kernels that several processes compile: all are there afterwards, whoever compiled them and whatever went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from volumetric.devices.cpu.kernels.jit import cache_root
from volumetric.devices.cpu.kernels.kernel_files import KernelFiles

kept = pytest.mark.skipif(cache_root() is None, reason="kernels are not kept on this machine")

MARKS = """
import json, logging, sys
import numpy as np
from tests.cpu.small_operations import SMALL
from volumetric.devices.cpu import compile_operations, compile_process
logging.basicConfig(level=logging.INFO, format="%(message)s")
SMALL.home = sys.argv[1] or SMALL.home
started = []
init = compile_process.CompileProcess.__init__
compile_operations.CompileProcess.__init__ = lambda self, home: (started.append(home), init(self, home))[1]
compile_operations.compile_operations([("mark", (i,)) for i in range(6)], SMALL)
cell = np.zeros(1, np.int64)
written = []
for i in range(6):
    SMALL.compile("mark", i).ctypes(cell.ctypes.data, 0, 1, 0)
    written.append(int(cell[0]))
print(json.dumps([written, len(started), sum(SMALL.compile("mark", i).cache_hits for i in range(6))]))
"""


def marks(cache: Path, processes: int, home: str = "") -> tuple[list[int], int, int]:
    """Make six operations ready in a process of its own; return what they write, and how many came from where."""
    done = subprocess.run(
        [sys.executable, "-c", MARKS, home],
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "VOLUMETRIC_COMPILE_PROCESSES": str(processes),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "compiled 6 kernels in" in done.stderr
    written, started, loaded = json.loads(done.stdout)
    return written, started, loaded


@pytest.mark.thorough
@kept
def test_processes_share_the_work_and_nothing_is_mixed_up(tmp_path: Path) -> None:
    written, started, loaded = marks(tmp_path, 3)
    assert written == [0, 1, 2, 3, 4, 5]
    assert started == 2
    assert loaded == 6  # by the one that waits, which compiles nothing


@pytest.mark.thorough
@kept
def test_what_a_process_cannot_compile_is_compiled_by_the_one_that_waits(tmp_path: Path) -> None:
    written, started, loaded = marks(tmp_path, 2, "no_such_module:SMALL")
    assert (written, started, loaded) == ([0, 1, 2, 3, 4, 5], 2, 0)


def test_two_that_save_at_once_keep_both(tmp_path: Path) -> None:
    one, other = KernelFiles(str(tmp_path), "product-7.py311"), KernelFiles(str(tmp_path), "product-7.py311")
    assert one.load("int8") is None
    one.save(("int8",), "code of int8")  # neither has seen what the other wrote
    other.save(("float32",), "code of float32")
    assert one.load(("int8",)) == other.load(("int8",)) == "code of int8"
    assert one.load(("float32",)) == "code of float32"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_that_was_cut_short_is_compiled_again(tmp_path: Path) -> None:
    files = KernelFiles(str(tmp_path), "product-7.py311")
    files.save("key", list(range(100)))
    path = files.path("key")
    path.write_bytes(path.read_bytes()[:50])
    assert files.load("key") is None


def test_a_folder_that_cannot_be_written_costs_the_cache_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    KernelFiles(str(tmp_path / "file"), "product-7.py311").save("key", 1)
    assert "cannot save a compiled kernel" in caplog.text
