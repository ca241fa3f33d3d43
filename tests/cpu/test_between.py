"""Networks of which only a part runs on rows: packed weights there, small programs between, states on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.pieces import agree_in_company, agree_in_cuts, close, take_late_ids
from tests.runtime.test_delays import LOOPS
from tests.runtime.test_reference import chain
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.executable import CpuExecutable
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import (
    LSTM,
    BatchNorm1d,
    Conv1d,
    Conv2d,
    Dense,
    Entmax,
    Gate,
    GumbelSoftmax,
    KMeans,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    Reshape,
    Residual,
    RMSNorm,
    Sequential,
    Softmax,
    SwiGLU,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Link
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows
from volumetric.run.step_times import WHOLE

WIDTH = 32
OPTIONS = RunOptions(context=700, compute="float32")


def block(inner: LayerSpec) -> Sequential:
    """A residual block of attention, `inner` and an MLP."""
    norm = RMSNorm(num_features=WIDTH)
    return Sequential(
        layers=(
            norm,
            MultiHeadAttention(embed_dim=WIDTH, num_heads=2),
            Residual(source="input"),
            norm,
            inner,
            Residual(source="#2"),
            SwiGLU(in_features=WIDTH, hidden_features=48),
        )
    )


def convolution() -> LayerSpec:
    conv = Conv1d(in_channels=4, out_channels=4, kernel_size=3, padding=1, activation="tanh")
    return Sequential(layers=(Reshape(shape=(4, 8)), conv, Reshape(shape=(-1,))))


def experts() -> LayerSpec:
    gate = Gate(in_features=WIDTH, out_features=3, top_k=1)
    return Parallel(branches=(convolution(), Dense(in_features=WIDTH, out_features=WIDTH), Entmax()), combine="filter",
                    gate=gate)  # fmt: skip


def deep(inner: LayerSpec, *, links: tuple[Link, ...] = ()) -> Network:
    """Features through two blocks, `inner` in one of them."""
    plain = Dense(in_features=WIDTH, out_features=WIDTH)
    return chain((WIDTH,), block(plain), block(inner), Dense(in_features=WIDTH, out_features=5), Softmax(), links=links)


def late(source: int, target: int, rows: int) -> Link:
    return Link(kind="activation", source=Coord(source), target=Coord(target), combine="add", delay=rows)


NETWORKS = {
    "convolution": deep(convolution()),
    "kmeans": deep(Sequential(layers=(KMeans(in_features=WIDTH, num_clusters=WIDTH),))),
    "experts": deep(experts()),
    "noise": deep(GumbelSoftmax(seed=4)),
    "late": deep(Entmax(), links=(late(0, 1, 3),)),
    "loop": deep(LSTM(input_size=WIDTH, hidden_size=WIDTH), links=(late(1, 0, 2), late(1, 1, 3))),
}


def pair(network: Network, scheme: str | None = None, threads: int = 2) -> tuple[Any, CpuExecutable]:
    params = initialise(network, 3)
    if scheme is not None:
        network.morph(params, scheme, keep_masters=False)
    fast = CpuDevice(threads).compile(lower(network), params, OPTIONS)
    assert isinstance(fast, CpuExecutable)
    return ReferenceDevice().compile(lower(network), params, OPTIONS), fast


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", [None, "int4:g32"])
@pytest.mark.parametrize("which", NETWORKS)
def test_pieces_of_several_sequences_give_what_each_gives_alone(which: str, scheme: str | None) -> None:
    agree_in_company(*pair(NETWORKS[which], scheme), rows)


def inside(*layers: LayerSpec, shape: tuple[int, ...] = (1, 4 * WIDTH)) -> Network:
    """Layers that are a core, between products on rows."""
    wide = Dense(in_features=WIDTH, out_features=4 * WIDTH)
    return chain((WIDTH,), wide, Sequential(layers=(Reshape(shape=shape), *layers, Reshape(shape=(-1,)))),
                 Dense(in_features=4 * WIDTH, out_features=5))  # fmt: skip


ALIKE = {
    "product": inside(Dense(in_features=4 * WIDTH, out_features=4 * WIDTH)),
    "kmeans": inside(KMeans(in_features=4 * WIDTH, num_clusters=4 * WIDTH, temperature=30.0)),
    "cell": inside(LSTM(input_size=2 * WIDTH, hidden_size=2 * WIDTH), shape=(2, 2 * WIDTH)),
    "window": inside(Conv2d(in_channels=2, out_channels=2, kernel_size=9, padding=4), shape=(2, 8, 8)),
    **NETWORKS,
}
"""Among them products that few rows and many take in other forms elsewhere."""


@pytest.mark.thorough
@pytest.mark.parametrize("which", ALIKE)
def test_a_row_has_the_same_bits_in_any_company_and_cut(which: str) -> None:
    _, fast = pair(ALIKE[which])
    given = [rows(count, count) for count in (7, 1, 33, 2)]
    alone = [fast.forward(fast.new_state(), x, last_only=False) for x in given]
    together = fast.run([SequenceRows(fast.new_state(), x, "all") for x in given])
    for got, want in zip(together, alone, strict=True):
        np.testing.assert_array_equal(got, want)
    state = fast.new_state()
    parts = [fast.forward(state, given[2][a:b], last_only=False) for a, b in ((0, 1), (1, 9), (9, 11), (11, 33))]
    np.testing.assert_array_equal(np.concatenate(parts), alone[2])


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOOPS)
def test_links_with_a_delay_run_in_any_cut(name: str) -> None:
    x = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
    agree_in_cuts(*pair(LOOPS[name]), x, ((9,), (1, 5, 3), (4, 1, 4)))


def test_rows_of_any_shape_are_steps_in_time() -> None:
    conv = Conv2d(in_channels=1, out_channels=1, kernel_size=3, padding=1)
    network = chain((1, 3, 3), conv, conv, links=(late(1, 0, 1),))
    reference, fast = pair(network)
    x = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)
    want = reference.forward(reference.new_state(), x, last_only=False)
    close(fast.forward(fast.new_state(), x, last_only=False), want)


def test_ids_may_come_back_late() -> None:
    take_late_ids(lambda network: pair(network)[1])


def test_what_sees_a_whole_call_is_not_cut() -> None:
    norm = BatchNorm1d(num_features=WIDTH, track_running_stats=False)
    reference, fast = pair(chain((WIDTH,), Dense(in_features=WIDTH, out_features=WIDTH), norm, Entmax()))
    for count in (700, 3):
        x = rows(count)
        close(fast.forward(fast.new_state(), x, last_only=False),
              reference.forward(reference.new_state(), x, last_only=False))  # fmt: skip


def test_weights_stay_packed_but_those_that_programs_read() -> None:
    network = NETWORKS["convolution"]
    _, fast = pair(network, "int4:g32")
    _, plain = pair(deep(Dense(in_features=WIDTH, out_features=WIDTH)), "int4:g32")
    conv = 4 * (4 * 4 * 3 + 4)
    assert fast.memory.weights <= plain.memory.weights + conv + 128
    _, wide = pair(network)
    assert fast.memory.weights < 0.5 * wide.memory.weights


def test_branches_that_no_row_has_chosen_are_not_computed() -> None:
    _, fast = pair(NETWORKS["experts"])
    branches = [core for core in fast._open().program.between.cores.values() if core.segment.predicate]
    assert {core.segment.predicate[1] for core in branches if core.segment.predicate} == {0, 2}
    fast.forward(fast.new_state(), rows(1))
    assert sum(bool(list(core.programs)) for core in branches) <= 1  # programs are made when they first run


def test_a_profile_has_steps_and_programs() -> None:
    _, fast = pair(NETWORKS["loop"])
    state = fast.new_state()
    fast.forward(state, rows(3))
    kept = state.save()
    *steps, whole = fast.step_times([state], 1, repeats=2)
    labels = [step.label for step in steps]
    assert (whole.label, whole.count) == (WHOLE, sum(step.count for step in steps))
    assert any(label.startswith("core slice 1.0.0.0") for label in labels)
    assert any(label.startswith("vector_product") for label in labels)
    assert state.save() == kept


def test_more_rows_than_fit_a_chunk() -> None:
    reference, fast = pair(NETWORKS["convolution"])
    x = rows(600)
    want = reference.forward(reference.new_state(), x, last_only=False)
    close(fast.forward(fast.new_state(), x, last_only=False), want)
    assert len(fast.forward(fast.new_state(), x)) == 1


@pytest.mark.thorough
def test_results_do_not_depend_on_threads() -> None:
    found: Sequence[np.ndarray] = [
        fast.forward(fast.new_state(), rows(9), last_only=False)
        for fast in (pair(NETWORKS["convolution"], "int8:g32", threads)[1] for threads in (1, 2, 3))
    ]
    assert all(np.array_equal(found[0], other) for other in found)
