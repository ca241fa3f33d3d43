"""Several sequences decoded together on the GPU: the logits of each run alone, up to the order of float32 sums."""

from __future__ import annotations

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.errors import GenerationError
from volumetric.grid import Coord, Grid
from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    MultiHeadAttention,
    PositionEmbedding,
    Residual,
    RMSNorm,
    Rope,
    Softcap,
)
from volumetric.network import Network, initialise
from volumetric.runtime import RunOptions, fuse, lower
from volumetric.runtime.gpu import GpuDevice
from volumetric.runtime.gpu.batch import can_slice

WIDTH = 64  # 256 bytes a row: may be bound by itself on every GPU


def gpt() -> Network:
    return Network(
        grid=Grid(6),
        layers={
            Coord(0): Embedding(num_embeddings=97, embedding_dim=WIDTH),
            Coord(1): PositionEmbedding(num_embeddings=60, embedding_dim=WIDTH, offset=2),
            Coord(2): LayerNorm(num_features=WIDTH),
            Coord(3): MultiHeadAttention(embed_dim=WIDTH, num_heads=4, qkv_bias=True, out_bias=True),
            Coord(4): Residual(source="1.0.0.0"),
            Coord(5): MLP(in_features=WIDTH, hidden_features=70, activation="gelu_tanh"),
        },
    )


def gemma() -> Network:
    attention = MultiHeadAttention(
        embed_dim=WIDTH, num_heads=4, num_kv_heads=2, rope=Rope(dim=16), window=5, softcap=3.0, qk_norm=True
    )
    return Network(
        grid=Grid(5),
        layers={
            Coord(0): Embedding(num_embeddings=97, embedding_dim=WIDTH, scale=6.0),
            Coord(1): RMSNorm(num_features=WIDTH, unit_offset=True),
            Coord(2): attention,
            Coord(3): Dense(in_features=WIDTH, out_features=97, bias=False),
            Coord(4): Softcap(cap=5.0),
        },
    )


def llama() -> Network:
    return tiny_llama(width=WIDTH, heads=4, kv_heads=2, head_dim=16)


def fed(executable, prompts):
    states = [executable.new_state() for _ in prompts]
    for state, prompt in zip(states, prompts, strict=True):
        executable.forward(state, prompt)
    return states


def assert_rows(got, want):
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


@pytest.mark.parametrize("make", [llama, gpt, gemma])
@pytest.mark.parametrize("count", [3, 17])
def test_rows_agree_with_sequences_run_alone(native_device: GpuDevice, rng, make, count):
    network = make()
    plan = lower(network)
    assert can_slice(fuse(plan), native_device.context.alignment)
    executable = native_device.compile(plan, initialise(network, 1), RunOptions(context=64))
    prompts = [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.integers(1, 30, count)]
    together, alone = fed(executable, prompts), fed(executable, prompts)
    members = list(range(count))
    for _ in range(3):
        tokens = rng.integers(0, 97, len(members)).astype(np.int32)
        got = executable.forward_batch([together[i] for i in members], tokens)
        want = [executable.forward(alone[i], tokens[row : row + 1]) for row, i in enumerate(members)]
        assert_rows(got, np.concatenate(want))
        members = members[1:] + members[:1] if len(members) == 3 else members[2:]
    assert [state.position for state in together] == [state.position for state in alone]


def test_rows_that_cannot_be_sliced_run_one_by_one(native_device: GpuDevice, rng):
    network = tiny_llama(width=36, heads=3, kv_heads=1, head_dim=12)
    assert not can_slice(fuse(lower(network)), 256)
    executable = native_device.compile(lower(network), initialise(network, 1), RunOptions(context=16))
    tokens = np.array([5, 9], np.int32)
    got = executable.forward_batch([executable.new_state(), executable.new_state()], tokens)
    want = [executable.forward(executable.new_state(), tokens[i : i + 1]) for i in range(2)]
    assert_rows(got, np.concatenate(want))


def test_a_full_state_stops_the_batch_before_it_runs(native_device: GpuDevice):
    network = llama()
    executable = native_device.compile(lower(network), initialise(network, 1), RunOptions(context=4))
    full, other = fed(executable, [np.zeros(4, np.int32), np.zeros(1, np.int32)])
    with pytest.raises(GenerationError):
        executable.forward_batch([other, full], np.zeros(2, np.int32))
    assert other.position == 1
