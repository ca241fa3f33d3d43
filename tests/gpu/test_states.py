"""States of sequences on a GPU, and what a wrong use of an executable says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.harness import assert_close
from tests.gpu.test_executable import OPTIONS, bidirectional, gpt2_like, parallel
from tests.networks import tiny_llama
from volumetric.base.errors import DeviceError, GenerationError, ShapeError, UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.kernels.dispatch import Dispatch, WorkgroupGrid
from volumetric.dtypes import Scheme
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids


@pytest.mark.thorough
def test_single_rows_may_alternate_between_states(fallback_device: GpuDevice, rng: np.random.Generator) -> None:
    """The commands of a state's next row are encoded ahead: those of another state must not be taken for them."""
    network = tiny_llama()
    executable = fallback_device.compile(lower(network), initialise(network, 8), OPTIONS)
    ids = rng.integers(0, 97, (2, 6, 1)).astype(np.int32)
    expected = []
    for mine in ids:
        state = executable.new_state()
        expected.append([executable.forward(state, row) for row in mine])
    states = [executable.new_state(), executable.new_state()]
    for at in range(6):
        for which in (0, 1):
            got = executable.forward(states[which], ids[which, at])
            assert np.array_equal(got, expected[which][at])
    del states
    assert np.array_equal(executable.forward(executable.new_state(), ids[0, 0]), expected[0][0])
    executable.close()


@pytest.mark.thorough
def test_trim_forgets(native_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 9), OPTIONS)
    ids = rng.integers(0, 97, 30).astype(np.int32)
    state = executable.new_state()
    executable.forward(state, ids)
    state.trim(12)
    other = rng.integers(0, 97, 9).astype(np.int32)
    got = executable.forward(state, other)
    fresh = executable.new_state()
    executable.forward(fresh, ids[:12])
    assert np.array_equal(got, executable.forward(fresh, other))
    with pytest.raises(GenerationError, match="trim"):
        state.trim(22)


def test_fork_continues_independently(native_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 10), OPTIONS)
    ids = rng.integers(0, 97, 30).astype(np.int32)
    state = executable.new_state()
    executable.forward(state, ids[:20])
    twin = state.fork()
    executable.forward(state, ids[20:25])
    a = executable.forward(twin, ids[25:])
    fresh = executable.new_state()
    executable.forward(fresh, ids[:20])
    assert np.array_equal(a, executable.forward(fresh, ids[25:]))
    assert (state.position, twin.position) == (25, 25)


def test_a_cache_in_float16_is_half_as_large_and_close(native_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama()
    params = initialise(network, 11)
    ids = rng.integers(0, 97, 30).astype(np.int32)
    full = native_device.compile(lower(network), params, OPTIONS)
    half = native_device.compile(lower(network), params, RunOptions(context=96, kv_dtype="float16"))
    assert half.memory.state_per_token * 2 == full.memory.state_per_token
    a, b = (e.forward(e.new_state(), ids, last_only=False) for e in (full, half))
    assert not np.array_equal(a, b)
    assert_close(b, a, 5e-3)


def test_misuse_is_refused(native_device: GpuDevice) -> None:
    network = tiny_llama()
    params = initialise(network, 12)
    executable = native_device.compile(lower(network), params, OPTIONS)
    state = executable.new_state()
    with pytest.raises(GenerationError, match="vocabulary of 97"):
        executable.forward(state, np.array([97], np.int32))
    with pytest.raises(ShapeError):
        executable.forward(state, np.zeros((2, 3), np.float32))
    with pytest.raises(GenerationError, match="do not fit"):
        executable.forward(state, np.zeros(97, np.int32))
    assert state.position == 0
    features = native_device.compile(lower(parallel()), initialise(parallel(), 0), OPTIONS)
    with pytest.raises(UnsupportedError, match="token ids"):
        next(greedy_ids(features, features.new_state(), 0))


@pytest.mark.thorough
def test_learned_positions_end_before_the_context(native_device: GpuDevice) -> None:
    network = gpt2_like()
    executable = native_device.compile(lower(network), initialise(network, 0), RunOptions(context=200))
    state = executable.new_state()
    executable.forward(state, np.zeros(94, np.int32))
    tokens = greedy_ids(executable, state, 0)
    assert len([next(tokens), next(tokens)]) == 2
    with pytest.raises(GenerationError, match="97 tokens exceed the 96 positions"):
        next(tokens)
    with pytest.raises(GenerationError, match="98 tokens exceed"):
        executable.forward(state, np.zeros(2, np.int32))


@pytest.mark.thorough
def test_limits_are_reported_with_a_remedy() -> None:
    network = tiny_llama()
    device = GpuDevice(narrow={"max_binding": 16384})
    executable = device.compile(lower(network), initialise(network, 13), RunOptions(context=400, kv_dtype="float32"))
    state = executable.new_state()
    executable.forward(state, np.zeros(30, np.int32))
    with pytest.raises(DeviceError, match=r"more than the 224 rows of keys and values") as error:
        executable.forward(state, np.zeros(300, np.int32))
    assert "context" in (error.value.hint or "")
    with pytest.raises(DeviceError, match="all 4096 rows at once"):
        device.compile(lower(bidirectional()), initialise(bidirectional(), 0), RunOptions(context=4096))
    with pytest.raises(DeviceError, match="binds at most"):
        GpuDevice(narrow={"max_binding": 256}).compile(lower(network), initialise(network, 0), OPTIONS)


def test_a_lost_device_is_reported() -> None:
    device = GpuDevice()
    network = tiny_llama()
    executable = device.compile(lower(network), initialise(network, 16), OPTIONS)
    state = executable.new_state()
    device.context.device.destroy()
    with pytest.raises(DeviceError, match="lost") as error:
        executable.forward(state, np.zeros(3, np.int32))
    assert error.value.hint == "open the device again"


def test_a_shader_error_names_the_kernel(native_device: GpuDevice) -> None:
    broken = Dispatch(kernel="join", grid=WorkgroupGrid(x=1), constants={"WG": 64, "WIDTH4": 4, "SCALE": True})
    with pytest.raises(DeviceError, match="compiling join"):
        native_device.context.pipeline(broken)


def test_closing_frees_the_memory(native_device: GpuDevice) -> None:
    network = tiny_llama()
    context = native_device.context
    params = initialise(network, 14)
    native_device.compile(lower(network), params, OPTIONS).close()
    before = context.allocated
    executable = native_device.compile(lower(network), params, OPTIONS)
    state = executable.new_state()
    executable.forward(state, np.arange(20, dtype=np.int32))
    assert context.allocated > before
    del state
    executable.close()
    assert context.allocated == before


def test_an_int8_cache_is_refused(native_device: GpuDevice) -> None:
    network = tiny_llama()
    with pytest.raises(UnsupportedError, match="int8"):
        native_device.compile(lower(network), initialise(network, 0), RunOptions(kv_dtype="int8"))


@pytest.mark.thorough
@pytest.mark.parametrize(("dtype", "kept"), [("float32", "float32"), ("float16", "float16"), ("int4:g32", "float16")])
def test_the_cache_is_as_precise_as_the_weights(native_device, dtype, kept):
    network = tiny_llama()
    params = initialise(network, 1)
    for key, spec in network.param_specs().items():
        if spec.packable:
            params[key].morph(Scheme.parse(dtype))
    assert native_device.compile(lower(network), params, RunOptions(context=16)).options.kv_dtype == kept
