"""Networks whose products of many rows are of float16, beside the layers' own code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.devices import narrowed
from tests.gpu.harness import assert_close
from tests.gpu.test_experts import BIASED, GATED, WIDTH
from tests.networks import tiny_llama
from tests.pieces import run_all
from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.named_devices import open_device
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

ROUNDED = 2e-3
"""Of the largest output, after several layers whose products round both sides to 11 bits."""


def compiled(device: GpuDevice, network: Network, params: Params) -> GpuExecutable:
    executable = device.compile(lower(network), params, RunOptions(context=48, compute="float16"))
    assert isinstance(executable, GpuExecutable)
    return executable


def rounded(got: NDArray[Any], exact: NDArray[Any]) -> None:
    """Compare with what was not rounded, from which it differs by more than the order of sums."""
    assert_close(got, exact, ROUNDED)
    assert np.abs(got - exact).max() > 2e-5 * np.abs(exact).max(), "nothing was rounded"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "dtype", "rows"), [(GATED, "float16", 40), (BIASED, "int4:g32", 48)], ids=["gated", "biased"]
)
def test_a_mixture(network: Network, dtype: str, rows: int) -> None:
    """Many rows by expert: x of both products is halved, rows of the call and pairs of a row and an expert."""
    params = initialise(network, 3)
    network.morph(params, dtype, keep_masters=False)
    reference = ReferenceDevice().compile(lower(network), params, RunOptions(context=48))
    x = np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)
    halved = compiled(narrowed("native"), network, params)
    runs = [run_all(each, [SequenceRows(each.new_state(), x, "all")])[0] for each in (halved, halved, reference)]
    rounded(runs[0], runs[2])
    np.testing.assert_array_equal(runs[0], runs[1])


@pytest.mark.thorough
def test_a_batch_of_sequences_that_decode() -> None:
    """As many as a large GPU attends to in splits, which a product in float32 joins and one of halves does not."""
    network = tiny_llama(blocks=1, heads=2, kv_heads=1)  # a head or two leave room for splits
    params = initialise(network, 2)
    network.morph(params, "float16", keep_masters=False)
    logits = []
    reference = ReferenceDevice().compile(lower(network), params, RunOptions(context=48))
    for executable in (compiled(narrowed("large"), network, params), reference):
        states = [executable.new_state() for _ in range(20)]
        prompts = [SequenceRows(state, np.arange(i, i + 9, dtype=np.int32)) for i, state in enumerate(states)]
        executable.run(prompts)
        tokens = [SequenceRows(state, np.array([3 * i], np.int32)) for i, state in enumerate(states)]
        logits.append(np.concatenate(run_all(executable, tokens)))
    rounded(*logits)


@pytest.mark.thorough
def test_weights_that_float16_cannot_hold_stay_float32(native_device: GpuDevice) -> None:
    """Decided for each matrix as it becomes resident: the other matrices are halved."""
    key = "1.0.0.4/down.weight"
    network, x = tiny_llama(blocks=1), np.arange(20, dtype=np.int32)
    values = {name: np.array(store.values()) for name, store in initialise(network, 2).items()}
    values[key] *= 1e7
    params = Params({name: WeightStore.from_array(value) for name, value in values.items()})
    network.morph(params, "bfloat16", keep_masters=False)
    executable = compiled(native_device, network, params)
    reference = ReferenceDevice().compile(lower(network), params, RunOptions(context=48))
    rounded(*(run_all(each, [SequenceRows(each.new_state(), x, "all")])[0] for each in (executable, reference)))
    matrices = [executable.weights.matrix((name,)) for name in (key, "1.0.0.1/o.weight")]
    assert [matrix.fits_half for matrix in matrices] == [False, True]


def test_float16_belongs_to_gpus() -> None:
    """Other devices have no such products, and say so."""
    network = tiny_llama(blocks=1)
    for device in (ReferenceDevice(), open_device("cpu", threads=1)):
        with pytest.raises(UnsupportedError, match="float16"):
            device.compile(lower(network), initialise(network, 2), RunOptions(context=8, compute="float16"))
