"""Several sequences in one call on the GPU: the logits of each run alone, up to the order of float32 sums."""

from __future__ import annotations

import threading
from itertools import islice

import numpy as np
import pytest

from tests.networks import tiny_llama
from tests.pieces import one_row_each, run_all
from volumetric.base.errors import GenerationError
from volumetric.devices.gpu import GpuDevice
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
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import OutputRows, SequenceRows

WIDTH = 36
LENGTHS = (1, 6, 19)
"""Of prompts: one for each way to multiply, whose pipelines depend on the number of rows."""


def gpt() -> Network:
    return Network(
        grid=Grid(6),
        layers={
            Coord(0): Embedding(num_embeddings=97, embedding_dim=WIDTH),
            Coord(1): PositionEmbedding(num_embeddings=60, embedding_dim=WIDTH, offset=2),
            Coord(2): LayerNorm(num_features=WIDTH),
            Coord(3): MultiHeadAttention(embed_dim=WIDTH, num_heads=3, qkv_bias=True, out_bias=True),
            Coord(4): Residual(source="1.0.0.0"),
            Coord(5): MLP(in_features=WIDTH, hidden_features=70, activation="gelu_tanh"),
        },
    )


def gemma() -> Network:
    attention = MultiHeadAttention(
        embed_dim=WIDTH, num_heads=4, num_kv_heads=2, head_dim=9, rope=Rope(dim=6), window=5, softcap=3.0, qk_norm=True
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
    return tiny_llama(width=WIDTH, heads=3, kv_heads=1, head_dim=12)


def fed(executable, prompts):
    states = [executable.new_state() for _ in prompts]
    for state, prompt in zip(states, prompts, strict=True):
        executable.forward(state, prompt)
    return states


def assert_rows(got, want):
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "count"),
    [(llama, 3), (llama, 17), (gpt, 17), (gemma, 3)],  # both ways to multiply are those of any network
)
def test_rows_agree_with_sequences_run_alone(native_device: GpuDevice, rng, make, count):
    network = make()
    executable = native_device.compile(lower(network), initialise(network, 1), RunOptions(context=60))
    prompts = [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.choice(LENGTHS, count)]
    together, alone = fed(executable, prompts), fed(executable, prompts)
    members = list(range(count))
    for _ in range(3):
        tokens = rng.integers(0, 97, len(members)).astype(np.int32)
        got = one_row_each(executable, [together[i] for i in members], tokens)
        want = [executable.forward(alone[i], tokens[row : row + 1]) for row, i in enumerate(members)]
        assert_rows(got, np.concatenate(want))
        members = members[1:] + members[:1] if len(members) == 3 else members[2:]
    assert [state.position for state in together] == [state.position for state in alone]


@pytest.mark.thorough
def test_a_full_state_stops_the_batch_before_it_runs(native_device: GpuDevice):
    network = llama()
    executable = native_device.compile(lower(network), initialise(network, 1), RunOptions(context=4))
    full, other = fed(executable, [np.zeros(4, np.int32), np.zeros(1, np.int32)])
    with pytest.raises(GenerationError):
        one_row_each(executable, [other, full], np.zeros(2, np.int32))
    assert other.position == 1


def ragged(rng, executable, lengths):
    """States that have begun, and rows for them."""
    states = fed(executable, [rng.integers(0, 97, int(n)).astype(np.int32) for n in rng.choice(LENGTHS, len(lengths))])
    return states, [rng.integers(0, 97, n).astype(np.int32) for n in lengths]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "kv_dtype"),
    [(llama, "float32"), (gpt, "float32"), (gemma, "float16")],  # a cache is packed the same way whatever attends
)
def test_pieces_of_any_size_agree_with_each_alone(native_device: GpuDevice, rng, make, kv_dtype):
    network = make()
    options = RunOptions(context=60, kv_dtype=kv_dtype)
    executable = native_device.compile(lower(network), initialise(network, 1), options)
    wanted: tuple[OutputRows, ...] = ("last", "all", "none")
    for lengths in ([1, 40, 1, 3, 17, 1, 2, 33], [2, 2], [1, 5], [1, 1, 1]):
        states, rows = ragged(rng, executable, lengths)
        alone = [state.fork() for state in states]
        pieces = [SequenceRows(state, x, wanted[i % 3]) for i, (state, x) in enumerate(zip(states, rows, strict=True))]
        got = run_all(executable, pieces)
        for piece, other, found in zip(pieces, alone, got, strict=True):
            want = executable.forward(other, piece.x, last_only=False)
            assert piece.state.position == other.position
            if piece.output_rows == "none":
                assert found.shape == (0, want.shape[1])
            else:
                assert np.abs(found - want[-len(found) :]).max() < 1e-4 * np.abs(want).max()
                assert len(found) == (1 if piece.output_rows == "last" else len(piece.x))


@pytest.mark.thorough
def test_calls_beyond_the_scratch_memory_are_cut(rng):
    network = llama()
    params = initialise(network, 4)
    executable = GpuDevice(narrow={"max_binding": 16384}).compile(lower(network), params, RunOptions(context=90))
    assert executable.scratch.rows < 50
    states, rows = ragged(rng, executable, [50, 1, 30])
    alone = [state.fork() for state in states]
    got = run_all(executable, [SequenceRows(state, x, "all") for state, x in zip(states, rows, strict=True)])
    for state in states:
        state.reset()
    for other, x, found in zip(alone, rows, got, strict=True):
        want = executable.forward(other, x, last_only=False)
        assert np.abs(found - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.thorough
@pytest.mark.parametrize("make", [llama, gemma])
def test_greedy_of_several_sequences_is_greedy_of_each(native_device: GpuDevice, rng, make):
    network = make()
    executable = native_device.compile(lower(network), initialise(network, 2), RunOptions(context=60))
    states = fed(executable, [rng.integers(0, 97, n).astype(np.int32) for n in (3, 11, 30)])
    alone = [state.fork() for state in states]
    first = [5, 6, 7]
    expected = [list(islice(greedy_ids(executable, a, t), 20)) for a, t in zip(alone, first, strict=True)]
    stream = executable.greedy(states, first)
    got = [next(stream) for _ in range(8)]
    assert [state.position for state in states] == [11, 19, 38]
    executable.forward(executable.new_state(), np.zeros(4, np.int32))
    got += [next(stream) for _ in range(2)]
    stream.close()
    # the second one leaves, the others go on
    left = executable.greedy([states[0], states[2]], [got[-1][0], got[-1][2]])
    more = [next(left) for _ in range(10)]
    left.close()
    assert [row[0] for row in got] + [row[0] for row in more] == expected[0]
    assert [row[2] for row in got] + [row[1] for row in more] == expected[2]
    assert [row[1] for row in got] == expected[1][:10]
    assert [state.position for state in states] == [23, 21, 50]


@pytest.mark.thorough
def test_threads_take_turns(native_device: GpuDevice, rng):
    network = llama()
    executable = native_device.compile(lower(network), initialise(network, 2), RunOptions(context=60))
    prompts = [rng.integers(0, 97, n).astype(np.int32) for n in (5, 9, 13, 2)]
    expected = [list(islice(greedy_ids(executable, state, 1), 12)) for state in fed(executable, prompts)]
    found: list[list[int]] = [[], [], [], []]

    def work(number):
        state = executable.new_state()
        executable.forward(state, prompts[number])
        found[number] = list(islice(greedy_ids(executable, state, 1), 12))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
