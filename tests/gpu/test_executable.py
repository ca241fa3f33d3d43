"""Whole networks on the GPU against the reference device; states; shards; both executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.gpu.harness import assert_close, in_scheme
from tests.gpu.plain_executor import PlainExecutor
from tests.networks import tiny_llama
from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Rope,
    Sequential,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord
from volumetric.network.grid import Grid as Volume
from volumetric.network.weight_store import WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.graph.network_graph import NATIVE
from volumetric.run.step_times import WHOLE

Array = NDArray[Any]
OPTIONS = RunOptions(context=96, kv_dtype="float32")


def chain(*layers: LayerSpec, ids: bool = False, features: int = 6) -> Network:
    return Network(
        grid=Volume(len(layers)),
        layers={Coord(z): layer for z, layer in enumerate(layers)},
        input_shape=() if ids else (features,),
        input_dtype="int32" if ids else "float32",
    )


def morphed(params: Params, scheme: str) -> Params:
    """Matrices in a scheme; vectors stay."""
    return Params(
        {
            key: WeightStore.from_packed(in_scheme(store.values(), scheme)) if len(store.shape) > 1 else store
            for key, store in params.items()
        }
    )


def reference(network: Network, params: Params, x: Array) -> Array:
    executable = ReferenceDevice(np.float64).compile(lower(network), params, OPTIONS)
    return executable.forward(executable.new_state(), x, last_only=False)


def gpt2_like() -> Network:
    block = Sequential(
        layers=(
            LayerNorm(num_features=20),
            MultiHeadAttention(embed_dim=20, num_heads=5, qkv_bias=True, out_bias=True),
            Residual(),
            LayerNorm(num_features=20),
            MLP(in_features=20, hidden_features=50, activation="gelu_tanh"),
            Residual(),
        )
    )
    return chain(
        Embedding(num_embeddings=53, embedding_dim=20, scale=3.0),
        PositionEmbedding(num_embeddings=96, embedding_dim=20),
        block,
        LayerNorm(num_features=20, bias=False),
        Dense(in_features=20, out_features=53),
        Softcap(cap=2.0),
        ids=True,
    )


def parallel() -> Network:
    def branch(*layers: LayerSpec) -> Sequential:
        return Sequential(layers=layers)

    return chain(
        Parallel(
            branches=(
                Dense(in_features=6, out_features=7, activation="relu2"),
                branch(RMSNorm(num_features=6), Dense(in_features=6, out_features=7, activation="tanh")),
                branch(SwiGLU(in_features=6, hidden_features=9), Dense(in_features=6, out_features=7)),
            ),
            combine="avg",
        ),
        Parallel(branches=(RMSNorm(num_features=7), Dense(in_features=7, out_features=4)), combine="concat"),
        Softmax(temperature=0.5),
    )


def bidirectional() -> Network:
    return chain(
        MultiHeadAttention(embed_dim=6, num_heads=2, causal=False, rope=Rope(dim=2)),
        Dense(in_features=6, out_features=5),
    )


def test_a_fused_plan_is_a_short_list_of_dispatches(native_device: GpuDevice) -> None:
    network = tiny_llama(blocks=1)
    executable = native_device.compile(lower(network), initialise(network, 0), OPTIONS)
    names = [call.name for call in executable.recordings.calls("whole", CallRows(1, 1))]
    assert names == ["embedding", "matvec", "attend_split", "matvec", "matvec", "matvec", "matvec"]


def test_profiles_name_every_dispatch(native_device: GpuDevice) -> None:
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 0), OPTIONS)
    times = executable.kernel_times([executable.new_state()], repeats=1)
    kinds = {time.label: time.count for time in times}
    assert kinds.pop("all") == sum(kinds.values()) == 2 + 5 * 2
    assert kinds["attend_split 4x8 float32"] == 2
    assert kinds["matvec 91x32 float32"] == 2


@pytest.mark.thorough
def test_step_times_are_those_of_one_token_or_one_prompt(native_device: GpuDevice) -> None:
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 0), OPTIONS)
    state = executable.new_state()
    state.advance(5)
    token, prompt = (executable.step_times([state], rows, repeats=1) for rows in (1, 80))
    assert state.position == 5
    assert token[-1].label == prompt[-1].label == WHOLE
    assert any(step.label.startswith("matvec") for step in token)
    assert any(step.label.startswith("gemm") for step in prompt)
    assert token[-1].seconds > 0


@pytest.mark.parametrize(
    ("fallback_device", "make"),
    # The fallbacks of attention in both directions are tested with the kernel.
    [
        ("native", tiny_llama),
        ("native", parallel),
        ("native", bidirectional),
        ("no subgroups, no immediates", tiny_llama),
        ("no subgroups, no immediates", gpt2_like),
    ],
    indirect=["fallback_device"],
)
def test_networks_agree_with_the_reference(fallback_device: GpuDevice, rng: np.random.Generator, make: Any) -> None:
    network = make()
    params = initialise(network, 1)
    ids = network.input_dtype == "int32"
    x = rng.integers(0, 53, 40).astype(np.int32) if ids else rng.standard_normal((40, 6)).astype(np.float32)
    expected = reference(network, params, x)
    executable = fallback_device.compile(lower(network), params, OPTIONS)
    assert_close(executable.forward(executable.new_state(), x, last_only=False), expected, 2e-5)
    state = executable.new_state()
    assert_close(executable.forward(state, x), expected[-1:], 2e-5)
    assert state.position == 40


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["float16", "uint4:g32", "q4_k", "fp8", "ternary"])
def test_schemes_agree_with_the_reference(native_device: GpuDevice, rng: np.random.Generator, scheme: str) -> None:
    """Without scales, in groups, in blocks, with a scale a row, decoded; the parity suite runs every type."""
    network = tiny_llama(blocks=1)
    params = morphed(initialise(network, 2), scheme)
    ids = rng.integers(0, 97, 20).astype(np.int32)
    executable = native_device.compile(lower(network), params, OPTIONS)
    got = executable.forward(executable.new_state(), ids, last_only=False)
    assert_close(got, reference(network, params, ids), 2e-5)
    native = scheme in FORMATS or scheme == "fp8"  # whose scale of a row is repeated
    assert bool(executable.decoded) != native


@pytest.mark.thorough
def test_products_of_several_formats_keep_them(native_device: GpuDevice, rng: np.random.Generator) -> None:
    """Queries, keys and values share a product; most GGUF files have values in a wider type."""
    network = tiny_llama(blocks=1)
    params, other = morphed(initialise(network, 2), "q4_k"), morphed(initialise(network, 3), "int8:g32")
    mixed = Params({key: other[key] if "/v." in key else store for key, store in params.items()})
    assert {str(store.scheme) for store in mixed.values()} >= {"q4_k", "int8:g32"}
    ids = rng.integers(0, 97, 20).astype(np.int32)
    executable = native_device.compile(lower(network), mixed, OPTIONS)
    assert_close(executable.forward(executable.new_state(), ids, last_only=False), reference(network, mixed, ids), 2e-5)
    one = executable.forward(executable.new_state(), ids[:1])
    assert_close(one, reference(network, mixed, ids[:1]), 2e-5)
    assert not executable.decoded


@pytest.mark.parametrize("scheme", ["float64", "int64", "uint64"])
def test_types_of_64_bits_are_refused(native_device: GpuDevice, scheme: str) -> None:
    network = tiny_llama(blocks=1)
    with pytest.raises(UnsupportedError, match=f"is stored as {scheme}, and GPUs have no 64-bit") as caught:
        native_device.compile(lower(network), morphed(initialise(network), scheme), OPTIONS)
    assert 'morph(params, "float32")' in (caught.value.hint or "")


@pytest.mark.thorough
def test_rows_in_any_division_give_the_same(fallback_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama()
    ids = rng.integers(0, 97, 50).astype(np.int32)
    executable = fallback_device.compile(lower(network), initialise(network, 3), OPTIONS)
    whole = executable.forward(executable.new_state(), ids, last_only=False)
    state = executable.new_state()
    pieces = [executable.forward(state, ids[a:b], last_only=False) for a, b in ((0, 1), (1, 18), (18, 19), (19, 50))]
    assert_close(np.concatenate(pieces), whole, 1e-5)


@pytest.mark.thorough
def test_long_calls_run_in_chunks(rng: np.random.Generator) -> None:
    """With a small binding limit the scratch holds few rows, of the head even fewer."""
    network = tiny_llama(vocabulary=701)
    params = initialise(network, 4)
    ids = rng.integers(0, 701, 90).astype(np.int32)
    whole = GpuDevice(narrow={"max_binding": 16384}).compile(lower(network), params, OPTIONS)
    assert whole.scratch.tail_rows < whole.scratch.rows < 90
    expected = reference(network, params, ids)
    assert_close(whole.forward(whole.new_state(), ids, last_only=False), expected, 2e-5)
    assert_close(whole.forward(whole.new_state(), ids), expected[-1:], 2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["float32", "uint4:g32"])
def test_matrices_beyond_a_binding_are_sharded(rng: np.random.Generator, scheme: str) -> None:
    # A shard is a pipeline of its own: three are as good as eight.
    vocabulary, limit = (201, 24576) if scheme == "float32" else (701, 12288)
    network = tiny_llama(vocabulary=vocabulary, width=64)
    params = morphed(initialise(network, 5), scheme)
    ids = rng.integers(0, vocabulary, 30).astype(np.int32)
    executable = GpuDevice(narrow={"max_binding": limit}).compile(
        lower(network), params, RunOptions(context=32, kv_dtype="float32")
    )
    assert len(executable.weights.matrix(("0.0.0.0/weight",)).shards) > 1
    expected = reference(network, params, ids)
    assert_close(executable.forward(executable.new_state(), ids, last_only=False), expected, 2e-5)
    state = executable.new_state()
    executable.forward(state, ids[:29])
    assert_close(executable.forward(state, ids[29:]), expected[-1:], 2e-5)


def test_tied_weights_are_resident_once(native_device: GpuDevice) -> None:
    network = tiny_llama(blocks=1)
    params = initialise(network, 6)
    executable = native_device.compile(lower(network), params, OPTIONS)
    total = sum(store.packed().nbytes for store in params.values())
    assert total <= executable.memory.weights <= total + 64 * len(params)


@pytest.mark.thorough
def test_both_executors_give_the_same_bits(native_device: GpuDevice, rng: np.random.Generator) -> None:
    """Also where a call is long enough to be submitted in pieces."""
    network = tiny_llama(blocks=14)
    params = initialise(network, 7)
    ids = rng.integers(0, 97, 20).astype(np.int32)
    plan = lower(network)
    found = []
    for executor in (None, PlainExecutor(native_device.context)):
        executable = GpuExecutable(native_device.context, plan, NATIVE, params, OPTIONS, executor=executor)
        state = executable.new_state()
        logits = executable.forward(state, ids, last_only=False)
        tokens = greedy_ids(executable, state, 5)
        found.append((logits.tobytes(), [next(tokens) for _ in range(8)]))
        tokens.close()
    assert found[0] == found[1]


def test_replaying_gives_the_same_bits(native_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama()
    executable = native_device.compile(lower(network), initialise(network, 8), OPTIONS)
    ids = rng.integers(0, 97, 33).astype(np.int32)
    state = executable.new_state()
    first = executable.forward(state, ids, last_only=False)
    state.reset()
    assert state.position == 0
    assert np.array_equal(executable.forward(state, ids, last_only=False), first)


@pytest.mark.thorough
def test_int8_activations_stay_close(fallback_device: GpuDevice, rng: np.random.Generator) -> None:
    network = tiny_llama(width=64)
    params = morphed(initialise(network, 15), "int4:g32")
    ids = rng.integers(0, 97, 12).astype(np.int32)
    found = []
    for compute in ("float32", "int8"):
        options = RunOptions(context=96, compute=compute, kv_dtype="float32")
        executable = fallback_device.compile(lower(network), params, options)
        state = executable.new_state()
        found.append(np.concatenate([executable.forward(state, ids[i : i + 1]) for i in range(12)]))
    assert not np.array_equal(*found)
    assert_close(found[1], found[0], 5e-2)
