"""Whole networks on the CPU device against the reference device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.cpu.networks import IDS, NETWORKS, assert_close, gpt, outputs, random_params
from tests.networks import tiny_llama
from volumetric.base.errors import DeviceError, GenerationError, ShapeError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import Scheme
from volumetric.layers import (
    Dense,
)
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower


@pytest.mark.thorough
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_agrees_with_the_reference(name, threads, rng):
    network = NETWORKS[name]()
    params = random_params(lower(network), rng)
    want = outputs(ReferenceDevice(), network, params, IDS)
    got = outputs(CpuDevice(threads=threads), network, params, IDS)
    assert_close(got, want)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["llama", "gpt", "gemma", "joins"])
@pytest.mark.parametrize("pieces", [[1] * 21, [3, 1, 4, 13], [20, 1], [5, 6, 10]])
def test_pieces_make_the_whole(name, pieces, rng):
    network = NETWORKS[name]()
    params = random_params(lower(network), rng)
    want = outputs(ReferenceDevice(), network, params, IDS)
    got = outputs(CpuDevice(threads=2), network, params, IDS, pieces=pieces)
    assert_close(got, want)


@pytest.mark.thorough
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rows", [1, 3, 21])
def test_last_row_alone(name, rows, rng):
    network = NETWORKS[name]()
    params = random_params(lower(network), rng)
    device = CpuDevice(threads=2)
    whole = outputs(device, network, params, IDS[:rows])
    last = outputs(device, network, params, IDS[:rows], last_only=True)
    assert_close(last, whole[-1:])


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["float16", "bfloat16", "int8:g32", "int4:g32", "uint4:g32", "int2:g32", "float64"])
@pytest.mark.parametrize("pieces", [[21], [1, 2, 18]])
def test_schemes_with_exact_activations(scheme, pieces, rng):
    network = tiny_llama()
    params = random_params(lower(network), rng, scheme)
    want = outputs(ReferenceDevice(), network, params, IDS)
    got = outputs(CpuDevice(threads=2), network, params, IDS, pieces=pieces, compute="float32")
    assert_close(got, want)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["int8:g32", "int4:g32", "uint4:g32"])
def test_quantised_activations_stay_near(scheme, rng):
    """Rounding to max/127 in blocks of 32 normal numbers costs 2.3e-5 of the power; nine products follow each other."""
    network = tiny_llama(width=128, heads=4, head_dim=32)
    params = random_params(lower(network), rng, scheme, size=0.05)
    want = outputs(ReferenceDevice(), network, params, IDS)
    for pieces in ([21], [1] * 21):
        got = outputs(CpuDevice(threads=2), network, params, IDS, pieces=pieces, compute="int8")
        assert np.square(got - want).sum() / np.square(want).sum() < 1e-3


@pytest.mark.thorough
def test_bfloat16_activations_stay_near(rng):
    """Rounding to 8 bits costs 2**-18/3 of the power, for one row at a time as for many."""
    network = tiny_llama(width=128, heads=4, head_dim=32)
    params = random_params(lower(network), rng, "bfloat16", size=0.05)
    want = outputs(ReferenceDevice(), network, params, IDS)
    rounded = outputs(CpuDevice(threads=2), network, params, IDS, compute="bfloat16")
    error = np.square(rounded - want).sum() / np.square(want).sum()
    assert 1e-8 < error < 1e-4
    apart = outputs(CpuDevice(threads=2), network, params, IDS, pieces=[1] * 21, compute="bfloat16")
    np.testing.assert_array_equal(apart[-1:], rounded[-1:])


@pytest.mark.thorough
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("pieces", [[21], [6, 15], [2, 1, 7, 11]])
def test_rounded_attention_sees_what_it_should(name, pieces, rng):
    """Windows, soft caps, odd heads, earlier tokens, no state: an error of one position would be far larger."""
    network = NETWORKS[name]()
    if name == "encoder":  # sees one call alone
        pieces = [21]
    params = random_params(lower(network), rng, "bfloat16")
    want = outputs(ReferenceDevice(), network, params, IDS)
    found = [outputs(CpuDevice(threads=n), network, params, IDS, pieces=pieces, compute="bfloat16") for n in (1, 2, 5)]
    assert np.square(found[0] - want).sum() / np.square(want).sum() < 3e-4
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheme", "compute"),
    [("float32", "auto"), ("bfloat16", "bfloat16"), ("int4:g32", "int8"), ("uint4:g32", "float32")],
)
def test_threads_do_not_change_a_bit(scheme, compute, rng):
    network = tiny_llama()
    params = random_params(lower(network), rng, scheme)
    found = [
        outputs(CpuDevice(threads=n), network, params, IDS, pieces=[17, 1, 3], compute=compute) for n in (1, 2, 3, 7)
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.thorough
def test_mixed_schemes_in_one_product(rng):
    network = tiny_llama()
    params = dict(random_params(lower(network), rng))
    kinds = itertools.cycle(["int8:g32", "float32", "int4:g32", "bfloat16"])
    for key, store in params.items():
        if len(store.shape) == 2:
            params[key] = WeightStore.from_packed(store.convert(Scheme.parse(next(kinds)))[0])
    params = Params(params)
    want = outputs(ReferenceDevice(), network, params, IDS)
    for pieces in ([21], [1] * 21):
        assert_close(outputs(CpuDevice(threads=2), network, params, IDS, pieces=pieces, compute="float32"), want)
        for compute in ("int8", "bfloat16"):
            near = outputs(CpuDevice(threads=2), network, params, IDS, pieces=pieces, compute=compute)
            assert_close(near, want, 0.1)


@pytest.mark.thorough
def test_long_prompt_crosses_chunks_and_growing_caches(rng):
    network = tiny_llama()
    params = random_params(lower(network), rng)
    ids = rng.integers(0, 97, 700).astype(np.int32)
    want = outputs(ReferenceDevice(), network, params, ids)
    assert_close(outputs(CpuDevice(threads=2), network, params, ids), want)
    assert_close(outputs(CpuDevice(threads=2), network, params, ids, last_only=True), want[-1:])
    pieces = [255, 2, 260, 183]
    got = outputs(CpuDevice(threads=2), network, params, ids, pieces=pieces, kv_dtype="float16")
    assert_close(got, want, 5e-3)
    brief = Params(
        {key: WeightStore.from_packed(store.convert(Scheme.parse("bf16"))[0]) for key, store in params.items()}
    )
    want = outputs(ReferenceDevice(), network, brief, ids)
    got = outputs(CpuDevice(threads=2), network, brief, ids, pieces=pieces, compute="bfloat16")
    assert np.square(got - want).sum() / np.square(want).sum() < 3e-4


def test_features_as_input(rng):
    network = Network(
        grid=Grid(2),
        layers={
            Coord(0): Dense(in_features=7, out_features=50, activation="tanh"),
            Coord(1): Dense(in_features=50, out_features=3),
        },
        input_shape=(7,),
        input_dtype="float32",
    )
    params = random_params(lower(network), rng)
    x = rng.standard_normal((6, 7)).astype(np.float32)
    want = outputs(ReferenceDevice(), network, params, x)
    assert_close(outputs(CpuDevice(threads=2), network, params, x), want)


def test_state_trims_forks_and_resets(rng):
    network = tiny_llama()
    params = random_params(lower(network), rng)
    executable = CpuDevice(threads=2).compile(lower(network), params, RunOptions(context=64))
    state = executable.new_state()
    first = executable.forward(state, IDS)
    other = state.fork()
    executable.forward(state, IDS[:5])
    state.trim(20)
    np.testing.assert_array_equal(executable.forward(state, IDS[20:]), executable.forward(_cut(other, 20), IDS[20:]))
    state.reset()
    np.testing.assert_array_equal(executable.forward(state, IDS), first)
    with pytest.raises(GenerationError, match="trim"):
        state.trim(22)


def test_a_fresh_state_can_be_forked(rng):
    network = tiny_llama()
    executable = CpuDevice(threads=1).compile(lower(network), random_params(lower(network), rng))
    state = executable.new_state()
    other = state.fork()
    np.testing.assert_array_equal(executable.forward(other, IDS), executable.forward(state, IDS))


def _cut(state, position):
    state.trim(position)
    return state


def test_greedy_feeds_its_own_choice(rng):
    network = tiny_llama()
    params = random_params(lower(network), rng)
    executable = CpuDevice(threads=2).compile(lower(network), params, RunOptions(context=64))
    state = executable.new_state()
    executable.forward(state, IDS)
    plain, token, want = state.fork(), 4, []
    for _ in range(8):
        token = int(executable.forward(plain, np.array([token], np.int32))[0].argmax())
        want.append(token)
    assert list(itertools.islice(greedy_ids(executable, state, 4), 8)) == want
    assert state.position == len(IDS) + 8


def test_bad_calls_are_refused(rng):
    network = gpt()
    params = random_params(lower(network), rng)
    executable = CpuDevice(threads=1).compile(lower(network), params, RunOptions(context=60))
    state = executable.new_state()
    with pytest.raises(GenerationError, match="vocabulary"):
        executable.forward(state, np.array([97], np.int32))
    with pytest.raises(ShapeError):
        executable.forward(state, np.zeros((3, 2), np.float32))
    executable.forward(state, np.zeros(48, np.int32))
    with pytest.raises(GenerationError, match="position"):
        executable.forward(state, np.zeros(1, np.int32))
    with pytest.raises(GenerationError, match="context"):
        executable.forward(state, np.zeros(20, np.int32))
    executable.close()
    with pytest.raises(DeviceError, match="closed"):
        executable.new_state()


@pytest.mark.thorough
def test_memory_report_counts_bytes(rng):
    network = tiny_llama()
    plan = lower(network)
    executable = CpuDevice(threads=1).compile(plan, random_params(plan, rng, "int4:g32"), RunOptions(context=64))
    executable.forward(executable.new_state(), IDS)
    report = executable.memory
    elements = sum(int(np.prod(shape)) for shape in plan.params.values())
    assert elements * 0.5 < report.weights < elements * 4
    assert report.scratch > 0
    assert report.state_per_token == 2 * 2 * 2 * (8 + 16)  # layers, heads, bytes, keys and padded values


def test_device_says_what_it_is():
    info = CpuDevice(threads=2).info
    assert (info.name, info.kind, info.software) == ("cpu", "cpu", False)
    assert "2 threads" in info.description
    with pytest.raises(DeviceError, match="at least 1"):
        CpuDevice(threads=0)
