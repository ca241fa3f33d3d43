"""Keys and values in int8: a scale for each head of each token, and a stated error of the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import volumetric
from tests.cpu.networks import IDS, gemma, gpt, outputs, random_params, sinks
from tests.networks import tiny_llama
from volumetric.base.errors import UnsupportedError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import MultiHeadAttention
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower

pytestmark = pytest.mark.thorough

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


def error(got, want):
    """Power of the difference over that of the logits, each row's mean taken off: a constant changes no text."""
    got, want = (rows - rows.mean(axis=-1, keepdims=True) for rows in (got, want))
    return np.square(got - want).sum() / np.square(want).sum()


@pytest.mark.parametrize("make", [tiny_llama, gpt, gemma, sinks])
@pytest.mark.parametrize("pieces", [[21], [1] * 21, [9, 1, 11]])
def test_logits_stay_near(make, pieces, rng):
    """Rounding to max/127 costs a normal head 3e-5 of its power; sharp random attention makes more of it."""
    network = make()
    params = random_params(lower(network), rng)
    device = CpuDevice(threads=2)
    exact = outputs(device, network, params, IDS, pieces=pieces, kv_dtype="float32")
    rounded = outputs(device, network, params, IDS, pieces=pieces, kv_dtype="int8")
    assert 0 < error(rounded, exact) < 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "mistral", "qwen3"])
def test_logits_of_models_stay_near(family, rng):
    found = []
    for kv_dtype in ("float32", "int8"):
        with volumetric.load(TINY / family, device="cpu", context=64, kv_dtype=kv_dtype) as model:
            found.append(model.logits(np.random.default_rng(0).integers(0, 90, 60)))
    assert 0 < error(found[1], found[0]) < 1e-4


def test_one_token_pays_for_its_value_alone():
    """The only position gets the whole weight, whatever its key: the value is off by half a step of its scale."""
    network = tiny_llama(blocks=1)
    executables = [
        CpuDevice(threads=1).compile(
            lower(network), random_params(lower(network), np.random.default_rng(0)), RunOptions(kv_dtype=kv_dtype)
        )
        for kv_dtype in ("float32", "int8")
    ]
    one_token = [e.forward(e.new_state(), np.array([5], np.int32)) for e in executables]
    assert 0 < np.abs(one_token[0] - one_token[1]).max() < 0.01 * np.abs(one_token[0]).max()


@pytest.mark.parametrize("size", [1e-2, 1e-6, 1e-15, 1e4])
def test_heads_of_any_size_keep_their_relative_error(size, rng):
    """Keys and values of `size` with queries as much larger: nothing but the size of the output changes."""
    network = Network(
        grid=Grid(1),
        layers={Coord(0): MultiHeadAttention(embed_dim=24, num_heads=3, num_kv_heads=1)},
        input_shape=(24,),
        input_dtype="float32",
    )
    params = dict(random_params(lower(network), rng, size=1.0))
    for name, factor in (("q", 1 / size), ("k", size), ("v", size)):
        key = f"0.0.0.0/{name}.weight"
        params[key] = WeightStore.from_array(params[key].values() * np.float32(factor))
    x = rng.standard_normal((19, 24)).astype(np.float32)
    for pieces in ([19], [1] * 19):
        found = []
        for kv_dtype in ("float32", "int8"):
            device = CpuDevice(threads=1)
            found.append(outputs(device, network, Params(params), x, pieces=pieces, kv_dtype=kv_dtype))
        exact, rounded = found
        assert 0 < np.abs(rounded - exact).max() < 0.05 * np.abs(exact).max()


def test_caches_grow_and_fork_with_their_scales(rng):
    network = tiny_llama()
    executable = CpuDevice(threads=2).compile(
        lower(network), random_params(lower(network), rng), RunOptions(context=600, kv_dtype="int8")
    )
    ids = rng.integers(0, 97, 530).astype(np.int32)
    whole, grown = executable.new_state(), executable.new_state()
    executable.forward(whole, ids[:-1])
    for start in range(0, 529, 23):
        executable.forward(grown, ids[start : start + 23][: 529 - start])
    fork = grown.fork()
    wants = [executable.forward(state, ids[-1:]) for state in (whole, grown, fork)]
    np.testing.assert_array_equal(wants[1], wants[2])
    assert np.abs(wants[0] - wants[1]).max() < 1e-4 * np.abs(wants[0]).max()


def test_the_report_counts_codes_and_scales(rng):
    network = tiny_llama()  # two layers of two heads of 8 numbers; values are padded to 16
    params = random_params(lower(network), rng)
    sizes = {}
    for kv_dtype in ("float32", "float16", "int8"):
        executable = CpuDevice(threads=1).compile(lower(network), params, RunOptions(kv_dtype=kv_dtype))
        sizes[kv_dtype] = executable.memory.state_per_token
    assert sizes == {"float32": 2 * 2 * 24 * 4, "float16": 2 * 2 * 24 * 2, "int8": 2 * 2 * (24 + 8)}


def test_other_devices_refuse(rng):
    network = tiny_llama()
    plan, params = lower(network), random_params(lower(network), rng)
    with pytest.raises(UnsupportedError, match="floats"):
        ReferenceDevice().compile(plan, params, RunOptions(kv_dtype="int8"))
