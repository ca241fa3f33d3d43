"""Greedy decoding on the device is forward and arg max, whatever happens between tokens."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.gpu_state import GpuState
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids


@pytest.fixture
def executable(fallback_device: GpuDevice) -> GpuExecutable:
    network = tiny_llama()
    return fallback_device.compile(lower(network), initialise(network, 21), RunOptions(context=40))


def prefilled(executable: GpuExecutable, seed: int = 0, rows: int = 9) -> GpuState:
    state = executable.new_state()
    executable.forward(state, np.random.default_rng(seed).integers(0, 97, rows).astype(np.int32))
    return state


def by_forward(executable: GpuExecutable, state: GpuState, token: int, count: int) -> list[int]:
    found = []
    for _ in range(count):
        token = int(executable.forward(state, np.array([token], np.int32))[-1].argmax())
        found.append(token)
    return found


@pytest.mark.thorough
def test_greedy_is_forward_and_argmax(executable: GpuExecutable) -> None:
    state = prefilled(executable)
    assert list(islice(greedy_ids(executable, state, 5), 12)) == by_forward(executable, prefilled(executable), 5, 12)


@pytest.mark.thorough
def test_the_position_counts_the_tokens_yielded(executable: GpuExecutable) -> None:
    state = prefilled(executable)
    tokens = greedy_ids(executable, state, 5)
    last = 5
    for count in range(1, 5):
        last = next(tokens)
        assert state.position == 9 + count
    tokens.close()
    assert state.position == 13
    other = prefilled(executable)
    expected = by_forward(executable, other, 5, 6)
    assert by_forward(executable, state, last, 2) == expected[4:]


@pytest.mark.thorough
def test_other_work_may_come_between_tokens(executable: GpuExecutable) -> None:
    a, b = prefilled(executable), prefilled(executable, seed=1)
    first, second = greedy_ids(executable, a, 5), greedy_ids(executable, b, 6)
    got_a, got_b = [], []
    for _ in range(4):
        got_a += [next(first), next(first)]
        got_b.append(next(second))
        prefilled(executable, seed=2)
    first.close()
    second.close()
    assert got_a == by_forward(executable, prefilled(executable), 5, 8)
    assert got_b == by_forward(executable, prefilled(executable, seed=1), 6, 4)


@pytest.mark.thorough
def test_decoding_resumes_after_a_trim(executable: GpuExecutable) -> None:
    state = prefilled(executable)
    tokens = list(islice(greedy_ids(executable, state, 5), 6))
    state.trim(12)
    assert list(islice(greedy_ids(executable, state, tokens[2]), 3)) == tokens[3:]


@pytest.mark.thorough
def test_the_context_fills_exactly(executable: GpuExecutable) -> None:
    state = prefilled(executable)
    tokens = greedy_ids(executable, state, 5)
    assert len(list(islice(tokens, 31))) == 31
    assert state.position == 40
    with pytest.raises(GenerationError, match="do not fit its 40"):
        next(tokens)
    with pytest.raises(GenerationError, match="do not fit"):
        executable.forward(state, np.array([1], np.int32))


def test_a_token_outside_of_the_vocabulary_is_refused(executable: GpuExecutable) -> None:
    with pytest.raises(GenerationError, match="vocabulary"):
        executable.greedy([executable.new_state()], [97])
    with pytest.raises(GenerationError, match="token ids must be in"):
        executable.greedy([executable.new_state()], [-1])
