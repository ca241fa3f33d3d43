"""Mixtures on the CPU: many rows, brought to their experts, have the bits of few, which run guarded products."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.runtime.test_reference import chain
from volumetric.devices.cpu.device import CpuDevice
from volumetric.devices.cpu.executable import CpuExecutable
from volumetric.devices.cpu.kernels.mixtures.expert_routes import ROUTE_ARGUMENTS
from volumetric.devices.cpu.kernels.operations import ROWS
from volumetric.devices.cpu.kernels.step_words import CONTROL_WORDS, FIRST_ARGUMENT, ROWS_WORD, SLOTS_WORD, STEP_WORDS
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import MLP, Dense, Gate, LayerSpec, MultiHeadAttention, Parallel, Residual, RMSNorm, SwiGLU
from volumetric.layers.gate import SCORINGS
from volumetric.network import Network, Params, initialise
from volumetric.network.weight_store import WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

pytestmark = pytest.mark.thorough

WIDTH, EXPERTS = 70, 5
GATE = Gate(in_features=WIDTH, out_features=EXPERTS, top_k=2)
GATED = SwiGLU(in_features=WIDTH, hidden_features=37)
BIASED = MLP(in_features=WIDTH, hidden_features=64, activation="gelu")
BOUNDED = replace(GATED, bias=True, limit=1.5, up_offset=1.0)


def network(expert: LayerSpec, gate: Gate = GATE) -> Network:
    """A mixture with a norm before it and a sum around both, attention, and a mixture of the tail."""
    mixed = Parallel(branches=(expert,) * gate.out_features, combine="filter", gate=gate)
    around = Dense(in_features=WIDTH, out_features=WIDTH), RMSNorm(num_features=WIDTH)
    return chain(
        (WIDTH,), *around, mixed, Residual(source="0.0.0.0"), MultiHeadAttention(embed_dim=WIDTH, num_heads=5), mixed
    )


def weights(made: Network, scheme: str | None = None) -> Params:
    rng = np.random.default_rng(5)
    shapes = {key: store.shape for key, store in initialise(made, 3).items()}
    params = Params(
        {key: WeightStore.from_array(rng.normal(0, 0.15, shape).astype(np.float32)) for key, shape in shapes.items()}
    )
    if scheme is not None:
        made.morph(params, scheme, keep_masters=False)
    return params


def compiled(made: Network, params: Params, compute: Any = "float32", threads: int = 2) -> CpuExecutable:
    executable = CpuDevice(threads).compile(lower(made), params, RunOptions(context=640, compute=compute))
    assert isinstance(executable, CpuExecutable)
    return executable


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, WIDTH)).astype(np.float32)


def few_at_a_time(executable: CpuExecutable, x: np.ndarray) -> np.ndarray:
    """Rows in calls of at most 4."""
    state = executable.new_state()
    return np.concatenate([executable.forward(state, x[i : i + 4], last_only=False) for i in range(0, len(x), 4)])


def steps(executable: CpuExecutable, count: int) -> set[str]:
    """Names of the steps of a call."""
    return {time.label.split()[0] for time in executable.step_times([executable.new_state()], count, repeats=1)}


SCHEMES = [
    (None, "float32"),
    ("bfloat16", "bfloat16"),
    ("int4:g32", "int8"),
    ("int8:g32", "float32"),
    ("mxfp4", "int8"),
]


OF_EACH_KIND = [SCHEMES[0], SCHEMES[2], SCHEMES[-1]]
"""Exact, by bytes, in blocks. Bias and bounds act on sums, which are float32 whatever the weights were: the two share
the kinds."""


@pytest.mark.parametrize(
    ("expert", "scheme", "compute"),
    [
        *(pytest.param(GATED, *each, id=f"gated-{each[0]}-{each[1]}") for each in SCHEMES),
        *(pytest.param(BIASED, *each, id=f"biased-{each[0]}-{each[1]}") for each in OF_EACH_KIND[:2]),
        *(pytest.param(BOUNDED, *each, id=f"bounded-{each[0]}-{each[1]}") for each in OF_EACH_KIND[2:]),
    ],
)
def test_many_rows_have_the_bits_of_few(expert: LayerSpec, scheme: str | None, compute: str) -> None:
    made = network(expert)
    params = weights(made, scheme)
    executable = compiled(made, params, compute)
    x = rows(230)
    wanted = few_at_a_time(executable, x)
    for count in (5, 41, 230):
        found = executable.forward(executable.new_state(), x[:count], last_only=False)
        np.testing.assert_array_equal(found, wanted[:count])
    if compute == "float32":
        reference = ReferenceDevice().compile(lower(made), params)
        meant = reference.forward(reference.new_state(), x, last_only=False)
        np.testing.assert_allclose(wanted, meant, rtol=0, atol=2e-5 * np.abs(meant).max())


def test_which_steps_run() -> None:
    made = network(GATED)
    params = weights(made, "int4:g32")
    executable = compiled(made, params, "int8")
    assert "each_expert" in steps(executable, 5) & steps(executable, 50)
    assert "each_expert" not in steps(executable, 4)
    # Experts of several forms are run one by one, with the rows of the call.
    key = "2.0.0.0/1/down.weight"
    mixed = Params({**params, key: WeightStore.from_array(params[key].values())})
    assert "each_expert" not in steps(compiled(made, mixed, "int8"), 50)
    few, many = (
        compiled(made, mixed, "int8").forward(executable.new_state(), rows(9)[:count], last_only=False)
        for count in (4, 9)
    )
    np.testing.assert_array_equal(few, many[:4])


@pytest.mark.parametrize("threads", [1, 3])
def test_a_prompt_in_any_cut_company_and_threads(threads: int) -> None:
    made = network(GATED)
    params = weights(made, "int4:g32")
    executable, x = compiled(made, params, "int8", threads), rows(600)
    other = compiled(made, params, "int8", 2)
    whole = executable.forward(executable.new_state(), x, last_only=False)
    np.testing.assert_array_equal(whole, other.forward(other.new_state(), x, last_only=False))
    state, cuts = executable.new_state(), (0, 1, 300, 307, 347, 600)
    spans = list(pairwise(cuts))
    parts = [executable.forward(state, x[a:b], last_only=False) for a, b in spans]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    pieces = [SequenceRows(executable.new_state(), x[a:b], "last") for a, b in spans]
    alone = [executable.forward(executable.new_state(), x[a:b]) for a, b in spans]
    for wanted, found in zip(alone, executable.run(pieces), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "gate",
    [
        *(replace(GATE, scoring=scoring) for scoring in SCORINGS),
        replace(GATE, top_k=None, bias=True),
        replace(GATE, top_k=None, scoring="sigmoid"),
        replace(GATE, top_k=3, out_features=21, scoring="softmax_all"),
    ],
    ids=lambda gate: f"{gate.scoring}-{gate.top_k}-{gate.out_features}",
)
def test_ways_to_choose(gate: Gate) -> None:
    made = network(GATED, gate)
    params = weights(made)
    executable, x = compiled(made, params), rows(23)
    x[3], x[4], x[5] = 0, 1e9, -1e-30
    reference = ReferenceDevice().compile(lower(made), params)
    found = executable.forward(executable.new_state(), x, last_only=False)
    np.testing.assert_array_equal(found, few_at_a_time(executable, x))
    meant = reference.forward(reference.new_state(), x, last_only=False)
    np.testing.assert_allclose(found[:3], meant[:3], rtol=0, atol=2e-5 * np.abs(meant[:3]).max())


def test_nan_stays_in_its_row_and_in_experts_that_are_not_chosen() -> None:
    mixed = Parallel(branches=(GATED,) * EXPERTS, combine="filter", gate=GATE)
    made = chain((WIDTH,), mixed)
    params, x = weights(made), rows(48)
    gate = np.zeros((EXPERTS, WIDTH), np.float32)
    gate[1, 0], gate[3, 0], gate[[0, 2, 4], 1] = 1, 1, -1
    x[:, 0], x[:, 1] = 1, 5  # all rows choose the second and the fourth
    stores = dict(params) | {"0.0.0.0/gate/weight": WeightStore.from_array(gate)}
    for key, store in params.items():
        if key.split("/")[1] in "024":
            stores[key] = WeightStore.from_array(np.full(store.shape, np.nan, np.float32))
    executable = compiled(made, Params(stores))
    clean = executable.forward(executable.new_state(), x, last_only=False)
    assert np.isfinite(clean).all()
    x[7, 2] = np.nan  # which makes all weights of the row NaN
    found = executable.forward(executable.new_state(), x, last_only=False)
    assert np.isnan(found[7]).all()
    np.testing.assert_array_equal(np.delete(found, 7, 0), np.delete(clean, 7, 0))
    np.testing.assert_array_equal(few_at_a_time(executable, x), found)


def test_pairs_come_in_the_order_of_experts() -> None:
    rng, count, most, room = np.random.default_rng(1), 7, 3, 37
    chosen = np.zeros((room, count), np.float32)
    for row in chosen[1:]:
        row[rng.choice([0, 1, 2, 4, 6], rng.integers(0, most + 1), replace=False)] = rng.choice([-1, 0.5, 2], 1)
    chosen[5, 2:] = np.nan
    made = [np.full((room, size), 99, np.int32) for size in (count + 2, most, most, most)]
    values = [padded(array) for array in (chosen, *made)]
    slots = np.array([(array.ctypes.data, array.strides[0]) for array in values], np.int64)
    control = np.zeros(CONTROL_WORDS, np.int64)
    control[ROWS_WORD], control[SLOTS_WORD] = room, slots.ctypes.data
    step = np.zeros(STEP_WORDS, np.int64)
    step[FIRST_ARGUMENT:][: len(ROUTE_ARGUMENTS)] = 0, count, most, 1, 2, 3, 4
    for thread in (1, 0):
        ROWS.compile("route").ctypes(step.ctypes.data, thread, 2, control.ctypes.data)
    chosen[5], chosen[5, 2] = 0, np.nan  # one that is NaN stands for all of a row
    experts, of = np.nonzero(chosen.T)
    starts, found, factors, places = (array.reshape(-1) for array in values[1:])
    np.testing.assert_array_equal(starts[: count + 1], np.searchsorted(experts, range(count + 1)))
    np.testing.assert_array_equal(found[: len(of)], of)
    np.testing.assert_array_equal(factors[: len(of)].view(np.float32), chosen[of, experts])
    for row, place in enumerate(places.reshape(room, -1)[:, :most]):
        wanted = np.flatnonzero(of == row)
        np.testing.assert_array_equal(place, [*wanted, *[-1] * (most - len(wanted))])


def padded(rows: np.ndarray) -> np.ndarray:
    """Rows a multiple of 64 bytes apart."""
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 16))))
