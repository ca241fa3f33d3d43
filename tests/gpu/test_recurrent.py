"""Recurrent layers on the GPU: packed weights, and states on the device, for any number of sequences and rows."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed
from tests.gpu.harness import assert_close
from volumetric.base.errors import GenerationError
from volumetric.devices.gpu import GpuDevice, page_pool
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import GRU, LSTM, RNN, Dense, Embedding, LayerSpec, MultiHeadAttention, Residual
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import SequenceRows

WIDTH, VOCABULARY = 22, 61
CELLS: dict[str, LayerSpec] = {
    "tanh": RNN(input_size=WIDTH, hidden_size=WIDTH),
    "relu": RNN(input_size=WIDTH, hidden_size=WIDTH, nonlinearity="relu", bias=False),
    "lstm": LSTM(input_size=WIDTH, hidden_size=WIDTH),
    "gru": GRU(input_size=WIDTH, hidden_size=WIDTH),
}
LENGTHS = (1, 9, 1, 4, 1, 1, 1, 2)
"""More rows than one in some sequences, and as many single rows as round up to the rows of the call."""


def network(cell: str) -> Network:
    """A cell between attention, whose keys are kept in pages, and a head."""
    layers = (
        Embedding(num_embeddings=VOCABULARY, embedding_dim=WIDTH),
        MultiHeadAttention(embed_dim=WIDTH, num_heads=2),
        CELLS[cell],
        Residual(source="1.0.0.0"),
        Dense(in_features=WIDTH, out_features=VOCABULARY),
    )
    return Network(grid=Grid(len(layers)), layers={Coord(z): spec for z, spec in enumerate(layers)})


@cache
def compiled(cell: str, device: str = "native") -> tuple[Any, Any]:
    """The network on a GPU, and on the reference."""
    of = network(cell)
    plan, params, options = lower(of), initialise(of, 3), RunOptions(context=64)
    made = narrowed(device).compile(plan, params, options)
    assert isinstance(made, GpuExecutable)
    return made, ReferenceDevice().compile(plan, params, options)


def ids(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).astype(np.int32)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cell", "device"),
    # No cell adds across lanes: what is around it does, and that is the same for all.
    [
        ("tanh", "native"),
        ("relu", "no subgroups, no immediates"),
        ("lstm", "no subgroups, no immediates"),
        ("gru", "native"),
    ],
)
def test_sequences_of_different_lengths_go_on_together(cell: str, device: str) -> None:
    executables = compiled(cell, device)
    states = [[e.new_state() for _ in LENGTHS] for e in executables]
    for call in range(3):
        calls = [
            [SequenceRows(s, ids(n, i + call), "all") for i, (s, n) in enumerate(zip(held, LENGTHS, strict=True))]
            for held in states
        ]
        found = [e.run(pieces) for e, pieces in zip(executables, calls, strict=True)]
        for got, want in zip(*found, strict=True):
            assert_close(got, want)


@pytest.mark.thorough
def test_what_runs_ahead_of_greedy_decoding_leaves_the_state_as_it_is() -> None:
    executable, reference = compiled("lstm")
    states = [e.new_state() for e in (executable, reference)]
    for state, e in zip(states, (executable, reference), strict=True):
        e.forward(state, ids(5))
    for count in (1, 4, 6):
        found = []
        for state, e in zip(states, (executable, reference), strict=True):
            stream = greedy_ids(e, state, 3)
            found.append(list(islice(stream, count)))
            stream.close()
        assert found[0] == found[1]
        assert states[0].position == states[1].position
        assert_close(executable.forward(states[0], ids(2, count)), reference.forward(states[1], ids(2, count)))
    twin, back = states[0].fork(), executable.restore(states[0].save())
    want = reference.forward(states[1].fork(), ids(7, 9))
    for state in (twin, back, states[0]):
        assert_close(executable.forward(state, ids(7, 9)), want)
    with pytest.raises(GenerationError, match="has only the value"):
        twin.trim(3)
    twin.reset()
    assert_close(executable.forward(twin, ids(3)), reference.forward(reference.new_state(), ids(3)))


@pytest.mark.thorough
def test_more_sequences_than_lines_were_made_for() -> None:
    """Tables and fixed states move into larger buffers; values of the sequences so far go with them."""
    executable, reference = compiled("gru")
    states = []
    for i in range(40):
        state = executable.new_state()
        executable.forward(state, ids(2, i))
        states.append(state)
        if i % 3 == 0:
            states.append(state.fork())
    want = [reference.new_state() for _ in (0, 1)]
    reference.forward(want[0], ids(2, 0))
    reference.forward(want[1], ids(2, 39))
    for state in (states[0], states[1]):
        assert_close(executable.forward(state, ids(1)), reference.forward(want[0].fork(), ids(1)))
    assert_close(executable.forward(states[-2], ids(1)), reference.forward(want[1], ids(1)))


def test_sequences_take_twice_the_lines_each_time(native_device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of pages and states of a fixed size grow together, to the power of two that holds all sequences."""
    monkeypatch.setattr(page_pool, "_FIRST_LINES", 2)
    of = network("gru")
    executable = native_device.compile(lower(of), initialise(of, 3), RunOptions(context=64))
    pool = executable.pool

    def sizes() -> list[int]:
        tables: list[Any] = [one.tables for one in pool.sets]
        return [buffer.size for buffer in [*tables, *pool.fixed.buffers.values()]]

    line = [size // 2 for size in sizes()]
    assert len(line) == 2
    states = []
    for count in range(1, 10):
        states.append(executable.new_state())
        executable.run([SequenceRows(states[-1], ids(2))])
        assert sizes() == [each << count.bit_length() for each in line]  # the first line is nobody's
