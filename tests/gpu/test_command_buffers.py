"""Each command buffer that decoding finishes ahead is submitted, however a generation ends: wgpu frees no others."""

from __future__ import annotations

import gc
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.devices import command_buffers, narrowed
from tests.networks import tiny_llama
from volumetric.devices.gpu import native_executor
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

BLOCKS = 9
"""So many that the pass of a token is finished on another thread."""


@pytest.fixture
def before() -> int:
    """Command buffers that others have left, on a device that is open."""
    narrowed("native")
    gc.collect()
    return command_buffers()


def compiled() -> GpuExecutable:
    network = tiny_llama(blocks=BLOCKS)
    return narrowed("native").compile(lower(network), initialise(network, 21), RunOptions(context=40))


def generated(executable: GpuExecutable, count: int = 6) -> list[int]:
    state = executable.new_state()
    executable.forward(state, np.arange(5, dtype=np.int32))
    return list(islice(greedy_ids(executable, state, 5), count))


def sampled(executable: GpuExecutable) -> None:
    state = executable.new_state()
    for token in range(3):
        executable.forward(state, np.array([token], np.int32))


@pytest.mark.thorough
def test_a_closed_executable_leaves_none(before: int) -> None:
    executable = compiled()
    first = generated(executable)
    assert all(generated(executable) == first for _ in range(4))
    sampled(executable)
    assert command_buffers() <= before + 3  # what is ready for the next generation, and the next call
    executable.close()
    assert command_buffers() == before


@pytest.mark.thorough
@pytest.mark.parametrize("use", [generated, sampled])
def test_a_collected_executable_leaves_none(before: int, use: Any) -> None:
    for _ in range(3):
        use(compiled())
    # The other thread may hold the last one for a moment, until its command buffer is finished.
    assert any(gc.collect() is not None and command_buffers() == before for _ in range(200))


@pytest.mark.thorough
@pytest.mark.parametrize("use", [generated, sampled])
def test_an_interrupt_while_one_is_finished_loses_none(before: int, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    executable, waits = compiled(), []

    def interrupted(futures: Any) -> None:
        waits.append(futures)
        if len(waits) % 2 == 0:
            raise KeyboardInterrupt
        wait(futures)

    expected, wait = generated(executable), native_executor.wait
    monkeypatch.setattr(native_executor, "wait", interrupted)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            use(executable)
    monkeypatch.undo()
    assert generated(executable) == expected
    executable.close()
    assert command_buffers() == before
