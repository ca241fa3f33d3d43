"""Calls of several sequences, each with its own number of rows: what every device must make of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import GenerationError, ShapeError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import initialise
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Device, OutputRows, RunOptions, SequenceRows
from volumetric.run.lower import lower

DEVICES = {"reference": ReferenceDevice, "cpu": lambda: CpuDevice(threads=2)}


@pytest.fixture(params=DEVICES)
def executable(request: pytest.FixtureRequest) -> Any:
    device: Device = DEVICES[request.param]()
    network = tiny_llama()
    return device.compile(lower(network), initialise(network, 3), RunOptions(context=40))


def ids(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 97, count).astype(np.int32)


def test_pieces_give_what_each_sequence_gives_alone(executable: Any, rng: np.random.Generator) -> None:
    sizes = (7, 1, 12, 1, 3)
    wanted: tuple[OutputRows, ...] = ("last", "last", "none", "all", "all")
    together, alone = ([executable.new_state() for _ in sizes] for _ in range(2))
    for _ in range(2):
        rows = [ids(rng, size) for size in sizes]
        pieces = [SequenceRows(state, x, want) for state, x, want in zip(together, rows, wanted, strict=True)]
        got = executable.run(pieces)
        for found, state, x, want in zip(got, alone, rows, wanted, strict=True):
            every = executable.forward(state, x, last_only=False)
            expected = {"last": every[-1:], "all": every, "none": every[:0]}[want]
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert [state.position for state in together] == [2 * size for size in sizes]


def test_a_call_that_is_refused_changes_no_state(executable: Any, rng: np.random.Generator) -> None:
    full, other = executable.new_state(), executable.new_state()
    executable.run([SequenceRows(full, ids(rng, 38)), SequenceRows(other, ids(rng, 2))])
    with pytest.raises(GenerationError, match="do not fit"):
        executable.run([SequenceRows(other, ids(rng, 4)), SequenceRows(full, ids(rng, 3))])
    with pytest.raises(GenerationError, match="twice"):
        executable.run([SequenceRows(other, ids(rng, 1)), SequenceRows(other, ids(rng, 1))])
    with pytest.raises(GenerationError, match="vocabulary"):
        executable.run([SequenceRows(other, ids(rng, 1)), SequenceRows(full, np.array([97]))])
    with pytest.raises(ShapeError, match="at least one sequence"):
        executable.run([])
    with pytest.raises(ShapeError, match="at least one row"):
        executable.run([SequenceRows(full, ids(rng, 1)), SequenceRows(other, ids(rng, 0))])
    assert (full.position, other.position) == (38, 2)


def test_greedy_decoding_of_several_sequences_is_that_of_each(executable: Any, rng: np.random.Generator) -> None:
    together, alone = ([executable.new_state() for _ in range(3)] for _ in range(2))
    prompts = [ids(rng, size) for size in (1, 9, 4)]
    for states in (together, alone):
        executable.run([SequenceRows(state, x, "none") for state, x in zip(states, prompts, strict=True)])
    streams = [greedy_ids(executable, state, token) for state, token in zip(alone, (5, 6, 7), strict=True)]
    batch = executable.greedy(together, [5, 6, 7])
    assert [list(found) for found in islice(batch, 6)] == [[next(one) for one in streams] for _ in range(6)]
    batch.close()
    assert [state.position for state in together] == [7, 15, 10]
