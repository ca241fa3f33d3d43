"""Networks of which only a part runs on rows: packed weights there, small programs between, states on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.runtime.test_delays import LOOPS
from tests.runtime.test_reference import chain
from volumetric.grid import Coord, Grid, Link
from volumetric.layers import (
    LSTM,
    BatchNorm1d,
    Conv1d,
    Conv2d,
    Dense,
    Embedding,
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
from volumetric.runtime import RunOptions, lower
from volumetric.runtime.cpu import CpuDevice
from volumetric.runtime.cpu.executable import CpuExecutable
from volumetric.runtime.device import Piece, Wanted
from volumetric.runtime.profile import WHOLE
from volumetric.runtime.reference import ReferenceDevice

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


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * max(1.0, float(np.abs(want).max(initial=0))))


@pytest.mark.parametrize("scheme", [None, "int4:g32"])
@pytest.mark.parametrize("which", NETWORKS)
def test_pieces_of_several_sequences_give_what_each_gives_alone(which: str, scheme: str | None) -> None:
    reference, fast = pair(NETWORKS[which], scheme)
    sizes = (7, 1, 5, 1, 3)
    wanted: tuple[Wanted, ...] = ("last", "last", "none", "all", "all")
    together, alone = [fast.new_state() for _ in sizes], [reference.new_state() for _ in sizes]
    for turn in range(2):
        given = [rows(size, 10 * turn + i) for i, size in enumerate(sizes)]
        found = fast.run([Piece(*one) for one in zip(together, given, wanted, strict=True)])
        for got, state, x, want in zip(found, alone, given, wanted, strict=True):
            every = reference.forward(state, x, last_only=False)
            close(got, {"last": every[-1:], "all": every, "none": every[:0]}[want])
    again = fast.restore(together[0].save())
    fork, x = together[0].fork(), rows(2, 77)
    want = reference.forward(alone[0], x)
    for state in (together[0], fork, again):
        close(fast.forward(state, x), want)


@pytest.mark.parametrize("name", LOOPS)
def test_links_with_a_delay_run_in_any_cut(name: str) -> None:
    network = LOOPS[name]
    reference, fast = pair(network)
    x = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
    want = reference.forward(reference.new_state(), x, last_only=False)
    for cuts in ((9,), (1, 5, 3), (4, 1, 4)):
        state, at = fast.new_state(), 0
        for count in cuts:
            close(fast.forward(state, x[at : at + count], last_only=False), want[at : at + count])
            at += count
        state.trim(0)
        close(fast.forward(state, x[:2], last_only=False), want[:2])


def test_rows_of_any_shape_are_steps_in_time() -> None:
    conv = Conv2d(in_channels=1, out_channels=1, kernel_size=3, padding=1)
    network = chain((1, 3, 3), conv, conv, links=(late(1, 0, 1),))
    reference, fast = pair(network)
    x = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)
    want = reference.forward(reference.new_state(), x, last_only=False)
    close(fast.forward(fast.new_state(), x, last_only=False), want)


def test_ids_may_come_back_late() -> None:
    """A layer that is switched off passes token ids on."""
    network = Network(
        grid=Grid(2),
        layers={Coord(0): Softmax(), Coord(1): Embedding(num_embeddings=4, embedding_dim=2)},
        links=(Link(kind="activation", source=Coord(0), target=Coord(1), combine="replace", delay=1),),
        disabled=frozenset({Coord(0)}),
    )
    params = initialise(network, 3)
    fast: Any = CpuDevice(1).compile(lower(network), params, OPTIONS)
    table, state = params["1.0.0.0/weight"].values(), fast.new_state()
    assert np.array_equal(fast.forward(state, np.array([3, 1, 2]), last_only=False), table[[0, 3, 1]])
    assert state.read("0.0.0.0/delay1").dtype == np.int32
    assert np.array_equal(fast.forward(fast.restore(state.save()), np.array([0])), table[[2]])


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
    branches = [core for core in fast._open().program.between.cores.values() if core.segment.guard]
    assert {core.segment.guard[1] for core in branches if core.segment.guard} == {0, 2}
    fast.forward(fast.new_state(), rows(1))
    assert sum(bool(list(core.programs)) for core in branches) <= 1  # programs are made when they first run


def test_a_profile_has_steps_and_programs() -> None:
    _, fast = pair(NETWORKS["loop"])
    state = fast.new_state()
    fast.forward(state, rows(3))
    kept = state.save()
    *steps, whole = fast.step_times(state, 1, repeats=2)
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


def test_results_do_not_depend_on_threads() -> None:
    found: Sequence[np.ndarray] = [
        fast.forward(fast.new_state(), rows(9), last_only=False)
        for fast in (pair(NETWORKS["convolution"], "int8:g32", threads)[1] for threads in (1, 2, 3))
    ]
    assert all(np.array_equal(found[0], other) for other in found)
