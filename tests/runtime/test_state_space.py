"""State-space layers on the rows of a call: any cut of a sequence, several of them, and states that move."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import FAST, device
from tests.graph.test_networks import chain
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import LayerSpec, Mamba, Mamba2, Residual, RMSNorm, ShortConv
from volumetric.network import Network, initialise
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows
from volumetric.run.graph.partition import row_wise

WIDTH = 12
OPTIONS = RunOptions(context=64, compute="float32")
SPECS: dict[str, LayerSpec] = {
    "mamba": Mamba(embed_dim=WIDTH, inner_features=20, state_size=6, dt_rank=3),
    "mamba2-odd": Mamba2(
        embed_dim=WIDTH, num_heads=6, head_dim=5, state_size=7, groups=2, multipliers=(0.5, 2.0, 1.5, 0.7, 1.2)
    ),
    "mamba2-norm-first": Mamba2(
        embed_dim=WIDTH,
        num_heads=2,
        head_dim=16,
        state_size=9,
        norm_before_gate=True,
        dt_min=0.01,
        dt_max=0.05,
        bias=True,
    ),
    "short-conv": ShortConv(embed_dim=WIDTH, kernel_size=6, bias=True),
}
CUTS = ((0, 1), (1, 3), (3, 11), (11, 12), (12, 16), (16, 23))


def network(name: str) -> Network:
    return chain(SPECS[name], Residual(), RMSNorm(num_features=WIDTH), shape=(WIDTH,))


def sequences(count: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((count, 23, WIDTH)).astype(np.float32)


def whole(name: str, x: np.ndarray) -> np.ndarray:
    of = network(name)
    reference = ReferenceDevice(np.float64).compile(lower(of), initialise(of, 3), OPTIONS)
    return reference.forward(reference.new_state(), x, last_only=False)


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "on"), [*((name, "cpu") for name in SPECS), ("mamba", "gpu"), ("mamba2-odd", "gpu")])
def test_layers_run_on_rows_in_any_cut_and_company(name: str, on: str) -> None:
    of, x = network(name), sequences(2)
    assert row_wise(lower(of), device(on).native_operations)
    run = device(on).compile(lower(of), initialise(of, 3), OPTIONS)
    alone = run.forward(run.new_state(), x[0], last_only=False)
    state = run.new_state()
    cut = np.concatenate([run.forward(state, x[0][a:b], last_only=False) for a, b in CUTS])
    states = [run.new_state(), run.new_state()]
    found: list[list[np.ndarray]] = [[], []]
    for first, second in zip(CUTS, reversed(CUTS), strict=True):
        sizes = (first, (23 - second[1], 23 - second[0]))
        pieces = [SequenceRows(states[i], x[i][a:b], "all") for i, (a, b) in enumerate(sizes)]
        for own, rows in zip(found, run.run(pieces), strict=True):
            own.append(rows)
    together = [np.concatenate(rows) for rows in found]
    for got, want in ((alone, x[0]), (cut, x[0]), (together[0], x[0]), (together[1], x[1])):
        np.testing.assert_allclose(got, whole(name, want), atol=2e-6)
    if on == "cpu":
        np.testing.assert_array_equal(cut, alone)
        np.testing.assert_array_equal(together[0], alone)


@pytest.mark.thorough
@pytest.mark.parametrize("on", ["reference", *FAST])
@pytest.mark.parametrize("name", ["mamba", "mamba2-odd"])
def test_states_fork_trim_and_move_to_other_devices(name: str, on: str) -> None:
    of, [x] = network(name), sequences(1)
    run = device(on).compile(lower(of), initialise(of, 3), OPTIONS)
    want, state = whole(name, x), run.new_state()
    run.forward(state, x[:9], last_only=False)
    other = device("reference").compile(lower(of), initialise(of, 3), OPTIONS)
    saved = state.save()
    for engine, going_on in (
        (run, state.fork()),
        (run, run.restore(saved)),
        (other, other.restore(saved)),
        (run, state),
    ):
        rest = engine.forward(going_on, x[9:], last_only=False)
        np.testing.assert_allclose(rest, want[9:], atol=2e-6)
    state.trim(0)
    np.testing.assert_allclose(run.forward(state, x[:4], last_only=False), want[:4], atol=2e-6)
