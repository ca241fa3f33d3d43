"""The threads that run plans: parking, forking, several callers, and the end of the process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.cpu.networks import IDS, random_params
from tests.networks import tiny_llama
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.thread_pool import THREAD_POOL
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower


@pytest.fixture
def executable(rng):
    plan = lower(tiny_llama())
    return CpuDevice(threads=2).compile(plan, random_params(plan, rng), RunOptions(context=256))


def run(executable):
    return executable.forward(executable.new_state(), IDS, last_only=False)


def test_idle_workers_burn_no_time(executable):
    run(executable)
    time.sleep(0.3)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    first = run(executable)
    np.testing.assert_array_equal(run(executable), first)


def test_team_starts_again_after_it_was_closed(executable):
    want = run(executable)
    THREAD_POOL.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("volumetric-cpu")]
    np.testing.assert_array_equal(run(executable), want)


def test_callers_from_several_threads_take_turns(executable):
    want = run(executable)
    found: list[np.ndarray] = []
    callers = [threading.Thread(target=lambda: found.extend(run(executable) for _ in range(5))) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 15
    for other in found:
        np.testing.assert_array_equal(other, want)


FORKING = """
import os, warnings
warnings.simplefilter("ignore")  # newer Pythons warn of forks in a process with threads: that is the case to test
import numpy as np
from tests.cpu.networks import IDS, random_params
from tests.networks import tiny_llama
from volumetric.devices.cpu import CpuDevice
from volumetric.run.lower import lower
plan = lower(tiny_llama())
executable = CpuDevice(threads=2).compile(plan, random_params(plan, np.random.default_rng(0)))
want = executable.forward(executable.new_state(), IDS)
child = os.fork() if hasattr(os, "fork") else None
got = executable.forward(executable.new_state(), IDS)
if child == 0:
    os._exit(0 if np.array_equal(got, want) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0, np.array_equal(got, want))
"""


@pytest.mark.thorough
def test_a_forked_child_has_threads_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "True"]), done.stderr[-2000:]


def test_more_threads_than_work(rng):
    plan = lower(tiny_llama(width=16, heads=1, kv_heads=1))
    params = random_params(plan, rng)
    few = run(CpuDevice(threads=1).compile(plan, params))
    many = run(CpuDevice(threads=9).compile(plan, params))
    np.testing.assert_array_equal(few, many)
