"""Recurrent cells and mixtures on packed weights: any cut, company and number of threads, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.test_reference import chain
from volumetric.devices.cpu.device import CpuDevice
from volumetric.devices.cpu.executable import CpuExecutable
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import GRU, LSTM, RNN, Dense, Gate, LayerSpec, MultiHeadAttention, Parallel, RMSNorm, SwiGLU
from volumetric.layers.gate import SCORINGS, Scoring
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.device import Executable, SequenceRows

WIDTH, EXPERTS = 35, 4
OPTIONS = RunOptions(context=64, compute="float32")
CELLS: dict[str, LayerSpec] = {
    "lstm": LSTM(input_size=WIDTH, hidden_size=21),
    "gru": GRU(input_size=WIDTH, hidden_size=21, bias=False),
    "tanh": RNN(input_size=WIDTH, hidden_size=21),
    "relu": RNN(input_size=WIDTH, hidden_size=21, nonlinearity="relu"),
}


def mixture(chosen: int, scoring: Scoring = "softmax") -> Parallel:
    branches = tuple(SwiGLU(in_features=WIDTH, hidden_features=19) for _ in range(EXPERTS))
    gate = Gate(in_features=WIDTH, out_features=EXPERTS, top_k=chosen, scoring=scoring)
    return Parallel(branches=branches, combine="filter", gate=gate)


def deep(cell: LayerSpec) -> Network:
    return chain(
        (WIDTH,),
        RMSNorm(num_features=WIDTH),
        MultiHeadAttention(embed_dim=WIDTH, num_heads=5),
        cell,
        Dense(in_features=21, out_features=WIDTH),
        mixture(2),
        Dense(in_features=WIDTH, out_features=6),
    )


def stored(network: Network, scheme: str | None) -> Params:
    params = Params({key: _larger(store) for key, store in initialise(network, 2).items()})
    if scheme is not None:
        network.morph(params, scheme, keep_masters=False)
    return params


def _larger(store: WeightStore) -> WeightStore:
    """Matrices of three times the size, so that differences show."""
    return WeightStore.from_array(store.values() * np.float32(3 if len(store.shape) > 1 else 1))


def pair(network: Network, threads: int = 1, scheme: str | None = None) -> tuple[Executable, CpuExecutable]:
    params = stored(network, scheme)
    fast = CpuDevice(threads).compile(lower(network), params, OPTIONS)
    assert isinstance(fast, CpuExecutable)
    return ReferenceDevice().compile(lower(network), params, OPTIONS), fast


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * max(1.0, float(np.abs(want).max())))


@pytest.mark.thorough
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_cell_goes_on_from_its_state(cell: str, threads: int) -> None:
    reference, fast = pair(deep(CELLS[cell]), threads)
    states = reference.new_state(), fast.new_state()
    for seed, count in enumerate((1, 7, 2, 1)):
        x = rows(count, seed)
        close(fast.forward(states[1], x, last_only=False), reference.forward(states[0], x, last_only=False))
    x, other = rows(1, 9), states[1].fork()
    close(fast.forward(other, x), fast.forward(states[1], x))
    states[1].reset()
    close(fast.forward(states[1], x), reference.forward(reference.new_state(), x))


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["int4:g32", "int8:g32", "float16"])
def test_packed_weights_serve_cells_and_experts(scheme: str) -> None:
    reference, fast = pair(deep(CELLS["lstm"]), 2, scheme)
    plain = CpuDevice(1).compile(lower(deep(CELLS["lstm"])), stored(deep(CELLS["lstm"]), None), OPTIONS)
    assert fast.memory.weights < plain.memory.weights
    close(
        fast.forward(fast.new_state(), rows(5), last_only=False),
        reference.forward(reference.new_state(), rows(5), last_only=False),
    )


def test_sequences_of_several_lengths_have_the_bits_that_they_have_alone() -> None:
    _, fast = pair(deep(CELLS["lstm"]), 2)
    lengths = (1, 9, 3, 1, 6)
    together = [fast.new_state() for _ in lengths]
    alone = [fast.new_state() for _ in lengths]
    for turn in range(2):
        parts = [rows(count, 10 * turn + i) for i, count in enumerate(lengths)]
        found = fast.run([SequenceRows(state, x, "all") for state, x in zip(together, parts, strict=True)])
        for state, x, got in zip(alone, parts, found, strict=True):
            np.testing.assert_array_equal(got, fast.forward(state, x, last_only=False))


@pytest.mark.thorough
@pytest.mark.parametrize(("chosen", "scoring"), [(1, "softmax"), (EXPERTS, "softmax"), *((2, s) for s in SCORINGS)])
def test_a_mixture_computes_what_rows_have_chosen(chosen: int, scoring: Scoring) -> None:
    mixed = mixture(chosen, scoring)
    network = chain((WIDTH,), mixed, Dense(in_features=WIDTH, out_features=WIDTH), mixed)
    reference, fast = pair(network, 2)
    for count in (1, 5, 30):
        x = rows(count, count)
        close(
            fast.forward(fast.new_state(), x, last_only=False),
            reference.forward(reference.new_state(), x, last_only=False),
        )


@pytest.mark.parametrize("scoring", SCORINGS)
def test_experts_that_no_row_has_chosen_are_not_run(scoring: Scoring) -> None:
    network = chain((WIDTH,), mixture(1, scoring))
    params = stored(network, None)
    gate = np.zeros((EXPERTS, WIDTH), np.float32)
    gate[2] = 1.0  # rows of ones choose the third
    stores = dict(params) | {"0.0.0.0/gate/weight": WeightStore.from_array(gate)}
    for key, store in params.items():
        if "/gate/" not in key and not key.startswith("0.0.0.0/2/"):
            stores[key] = WeightStore.from_array(np.full(store.shape, np.nan, np.float32))
    fast = CpuDevice(2).compile(lower(network), Params(stores), OPTIONS)
    assert isinstance(fast, CpuExecutable)
    x = np.ones((3, WIDTH), np.float32)
    assert np.isfinite(fast.forward(fast.new_state(), x, last_only=False)).all()
