"""Pages of keys and values: memory follows the rows, forks share, growth moves what is there."""

from __future__ import annotations

import gc
from itertools import islice

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import DeviceError, GenerationError
from volumetric.devices.gpu import GpuDevice, page_pool, page_set
from volumetric.devices.gpu.call_schedule import NEAR_PAGES
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.attention import PAGE
from volumetric.devices.gpu.page_pool import SequencePages
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import SequenceRows


def opened(device: GpuDevice, context: int = 400, seed: int = 3) -> GpuExecutable:
    network = tiny_llama()
    return device.compile(lower(network), initialise(network, seed), RunOptions(context=context))


@pytest.fixture
def small(native_device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> GpuExecutable:
    """An executable whose pool begins with two pages, one of them nobody's."""
    monkeypatch.setattr(page_set, "_FIRST_BYTES", 1)
    monkeypatch.setattr(page_pool, "_FIRST_LINES", 2)
    return opened(native_device)


def in_use(executable: GpuExecutable) -> int:
    [pages] = executable.pool.sets
    return executable.pool.nbytes // pages.page_bytes


def ids(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 97, count).astype(np.int32)


@pytest.mark.thorough
def test_a_state_takes_the_room_of_its_rows(native_device: GpuDevice, rng) -> None:
    executable = opened(native_device)
    state = executable.new_state()
    assert in_use(executable) == 0
    for rows, expected in ((1, 1), (PAGE - 1, 1), (1, 2), (3 * PAGE, 5)):
        executable.forward(state, ids(rng, rows))
        assert in_use(executable) == expected
    state.trim(PAGE)
    assert in_use(executable) == 1
    state.reset()
    assert in_use(executable) == 0


@pytest.mark.thorough
def test_states_that_are_gone_give_their_room_back(native_device: GpuDevice, rng) -> None:
    executable = opened(native_device)
    states = [executable.new_state() for _ in range(3)]
    executable.run([SequenceRows(state, ids(rng, 40)) for state in states])
    assert in_use(executable) == 6
    states.clear()
    gc.collect()
    assert in_use(executable) == 0


@pytest.mark.thorough
def test_forks_share_a_prefix(native_device: GpuDevice, rng) -> None:
    executable = opened(native_device)
    state = executable.new_state()
    prefix, suffixes = ids(rng, 2 * PAGE + 5), [ids(rng, 3) for _ in range(40)]
    executable.forward(state, prefix)
    forks = [state.fork() for _ in suffixes]
    assert in_use(executable) == 3
    found = [executable.forward(fork, suffix) for fork, suffix in zip(forks, suffixes, strict=True)]
    assert in_use(executable) == 3 + 40
    fresh = executable.new_state()
    executable.forward(fresh, prefix)
    for suffix, got in zip(suffixes[::13], found[::13], strict=True):
        assert np.array_equal(executable.forward(fresh, suffix), got)
        fresh.trim(len(prefix))
    assert np.array_equal(executable.forward(state, suffixes[7]), found[7])


@pytest.mark.thorough
def test_forks_of_a_beginning_share_its_pages_alone(native_device: GpuDevice, rng) -> None:
    executable = opened(native_device)
    state, fresh = executable.new_state(), executable.new_state()
    prompt, suffix = ids(rng, 3 * PAGE), ids(rng, 4)
    executable.forward(state, prompt)
    assert in_use(executable) == 3
    twin = state.fork(PAGE + 5)
    assert twin.position == PAGE + 5
    found = executable.forward(twin, suffix)
    assert in_use(executable) == 4  # the page that it has written to
    executable.forward(fresh, prompt)
    assert np.array_equal(executable.forward(fresh, suffix), executable.forward(state, suffix))
    fresh.trim(PAGE + 5)
    assert np.array_equal(executable.forward(fresh, suffix), found)


@pytest.mark.thorough
def test_forks_of_forks_diverge_inside_a_page(native_device: GpuDevice, rng) -> None:
    executable = opened(native_device)
    history = {0: np.empty(0, np.int32)}
    states = {0: executable.new_state()}
    for number in range(1, 12):
        parent = int(rng.integers(0, number))
        states[number] = states[parent].fork()
        history[number] = history[parent]
        for which in (parent, number):
            more = ids(rng, int(rng.integers(1, 9)))
            executable.forward(states[which], more)
            history[which] = np.concatenate([history[which], more])
        if number % 4 == 3:
            cut = int(rng.integers(1, len(history[number]) + 1))
            states[number].trim(cut)
            history[number] = history[number][:cut]
    for number, state in states.items():
        fresh = executable.new_state()
        executable.forward(fresh, history[number])
        got, want = executable.forward(state, history[0][:1]), executable.forward(fresh, history[0][:1])
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.thorough
def test_the_pool_grows_within_prompts_and_between_tokens(small: GpuExecutable, native_device, rng) -> None:
    roomy = opened(native_device)
    prompt = ids(rng, 100)
    found = []
    for executable in (small, roomy):
        state, other = executable.new_state(), executable.new_state()
        parts = [executable.forward(state, prompt[:20]), executable.forward(other, prompt[:70])]
        parts += [executable.forward(state, prompt[20:])]
        tokens = list(islice(greedy_ids(executable, state, 5), 90))
        third = executable.new_state()
        parts += [executable.forward(third, prompt[:9]), executable.forward(other, prompt[:1])]
        found.append((np.concatenate(parts).tobytes(), tokens))
    assert found[0] == found[1]


@pytest.mark.thorough
def test_more_than_a_binding_holds_is_refused_and_nothing_is_lost(rng) -> None:
    executable = opened(GpuDevice(narrow={"max_binding": 16384}))
    one, two = executable.new_state(), executable.new_state()
    executable.forward(one, ids(rng, 100))
    with pytest.raises(DeviceError, match="rows of keys and values that one buffer of this GPU") as caught:
        executable.forward(two, ids(rng, 390))
    assert "close finished sequences" in (caught.value.hint or "")
    assert two.position == 0
    two.reset()
    executable.forward(one, ids(rng, 20))
    executable.forward(two, ids(rng, 20))


def test_a_state_of_another_executable_is_refused(native_device: GpuDevice) -> None:
    one, two = opened(native_device), opened(native_device, seed=4)
    with pytest.raises(GenerationError, match="another executable"):
        one.forward(two.new_state(), np.zeros(1, np.int32))
    with pytest.raises(GenerationError, match="another executable"):
        one.greedy([two.new_state()], [0])


def test_holding_nothing_is_cheap(native_device: GpuDevice) -> None:
    executable = opened(native_device)
    before = native_device.context.allocated
    states = [executable.new_state() for _ in range(1000)]
    assert native_device.context.allocated == before
    assert all(isinstance(state.pages, SequencePages) and not any(state.pages.pages) for state in states)


@pytest.mark.thorough
def test_the_pool_grows_while_several_sequences_decode(small: GpuExecutable, native_device, rng) -> None:
    roomy = opened(native_device)
    found = []
    for executable in (small, roomy):
        warm = list(islice(greedy_ids(executable, executable.new_state(), 3), 2))
        states = [executable.new_state() for _ in range(3)]
        stream = executable.greedy(states, [1, 2, 3])
        found.append((warm, [next(stream) for _ in range(80)]))
        stream.close()
        executable.close()
    assert found[0] == found[1]


@pytest.mark.thorough
def test_pages_beyond_the_near_ones_are_found(native_device: GpuDevice) -> None:
    executable = opened(native_device, context=(NEAR_PAGES + 3) * PAGE)
    states = [executable.new_state() for _ in range(3)]
    for state in states:
        state.advance(NEAR_PAGES * PAGE - 3)
    tokens = list(islice(greedy_ids(executable, states[0], 5), 6))
    assert [[token, token] for token in tokens] == list(islice(executable.greedy(states[1:], [5, 5]), 6))
