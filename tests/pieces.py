"""Calls of several sequences, for the tests of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from volumetric.layers import Embedding, Softmax
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.run.device import Executable, OutputRows, SequenceRows, output_of

WANTED: tuple[OutputRows, ...] = ("last", "last", "none", "all", "all")


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * max(1.0, float(np.abs(want).max(initial=0))))


def agree_in_company(reference: Executable, fast: Executable, rows: Callable[[int, int], np.ndarray]) -> None:
    """Pieces of several sequences give what each gives alone; so do a fork and a state that was saved.

    Parameters
    ----------
    rows : makes rows of a number and a seed
    """
    sizes = (7, 1, 5, 1, 3)
    together, alone = [fast.new_state() for _ in sizes], [reference.new_state() for _ in sizes]
    for turn in range(2):
        given = [rows(size, 10 * turn + i) for i, size in enumerate(sizes)]
        found = run_all(fast, [SequenceRows(*one) for one in zip(together, given, WANTED, strict=True)])
        for got, state, x, want in zip(found, alone, given, WANTED, strict=True):
            every = reference.forward(state, x, last_only=False)
            close(got, {"last": every[-1:], "all": every, "none": every[:0]}[want])
    again = fast.restore(together[0].save())
    fork, x = together[0].fork(), rows(2, 77)
    want = reference.forward(alone[0], x)
    for state in (together[0], fork, again):
        close(fast.forward(state, x), want)


def agree_in_cuts(reference: Executable, fast: Executable, x: np.ndarray, cuts: Sequence[Sequence[int]]) -> None:
    """Rows that come in pieces of `cuts` give what they give together, from the start again after a trim."""
    want = reference.forward(reference.new_state(), x, last_only=False)
    for sizes in cuts:
        state, at = fast.new_state(), 0
        for count in sizes:
            close(fast.forward(state, x[at : at + count], last_only=False), want[at : at + count])
            at += count
        state.trim(0)
        close(fast.forward(state, x[:2], last_only=False), want[:2])


def take_late_ids(make: Callable[[Network], Executable]) -> None:
    """A layer that is switched off passes token ids on, which come back one row late.

    Parameters
    ----------
    make : compiles a network with its parameters of seed 3
    """
    network = Network(
        grid=Grid(2),
        layers={Coord(0): Softmax(), Coord(1): Embedding(num_embeddings=4, embedding_dim=2)},
        links=(Link(kind="activation", source=Coord(0), target=Coord(1), combine="replace", delay=1),),
        disabled=frozenset({Coord(0)}),
    )
    fast: Any = make(network)
    table, state = initialise(network, 3)["1.0.0.0/weight"].values(), fast.new_state()
    assert np.array_equal(fast.forward(state, np.array([3, 1, 2]), last_only=False), table[[0, 3, 1]])
    assert state.read("0.0.0.0/delay1").dtype == np.int32
    assert np.array_equal(fast.forward(fast.restore(state.save()), np.array([0])), table[[2]])


def one_row_each(executable: Executable, states: Sequence[Any], x: np.ndarray) -> np.ndarray:
    """Append a row of `x` to each of `states` in one call; the outputs, row by row."""
    pieces = [SequenceRows(state, x[i : i + 1]) for i, state in enumerate(states)]
    return np.concatenate(run_all(executable, pieces))


def run_all(executable: Executable, pieces: Sequence[SequenceRows]) -> list[np.ndarray]:
    """Return the output ``"output"`` of each piece of a call."""
    return [output_of(found) for found in executable.run(pieces)]
