"""Networks of which a part is no operation on rows: programs in the same pass, states on the GPU, in any company."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from tests.cpu.test_between import NETWORKS, OPTIONS, deep, late, rows
from tests.devices import device
from tests.graph.test_networks import chain
from tests.pieces import agree_in_company, agree_in_cuts, close, run_all, take_late_ids
from tests.program.test_guards import direct
from tests.runtime.test_delays import LOOPS
from tests.runtime.test_reference import chain as features
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.reference_device import ReferenceDevice, ReferenceExecutable
from volumetric.layers import (
    LSTM,
    BatchNorm1d,
    Conv2d,
    Dense,
    Embedding,
    Entmax,
    GumbelSoftmax,
    KMeans,
    LayerSpec,
    ShortConv,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Link
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows
from volumetric.run.graph import subgraphs
from volumetric.run.step_times import WHOLE

WIDTH = 32
LATE = deep(Entmax(), links=(late(1, 0, 3),))
"""A loop in which three rows run at a time: no power of two."""


def pair(network: Network, scheme: str | None = None) -> tuple[ReferenceExecutable, GpuExecutable]:
    params = initialise(network, 3)
    if scheme is not None:
        network.morph(params, scheme, keep_masters=False)
    options = RunOptions(context=OPTIONS.context, kv_dtype="float32")
    return (ReferenceDevice().compile(lower(network), params, options),
            device("gpu").compile(lower(network), params, options))  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("which", "scheme"),
    # Weights are read by products alone, which all of the networks have.
    [(which, (None, "int4:g32")[i % 2]) for i, which in enumerate([*NETWORKS, "three"])],
)
def test_pieces_of_several_sequences_give_what_each_gives_alone(which: str, scheme: str | None) -> None:
    agree_in_company(*pair(NETWORKS.get(which, LATE), scheme), rows)


@pytest.mark.thorough
@pytest.mark.parametrize("name", LOOPS)
def test_links_with_a_delay_run_in_any_cut(name: str) -> None:
    x = np.random.default_rng(1).standard_normal((9, 3)).astype(np.float32)
    agree_in_cuts(*pair(LOOPS[name]), x, ((9,), (4, 1, 4)))


def test_ids_may_come_back_late() -> None:
    take_late_ids(lambda network: pair(network)[1])


def test_rows_of_any_shape_go_through_and_come_out() -> None:
    conv = Conv2d(in_channels=1, out_channels=3, kernel_size=2)
    reference, fast = pair(features((1, 3, 4), conv))  # 18 elements of 12: neither is whole vectors
    for count in (1, 5):
        x = np.random.default_rng(0).standard_normal((count, 1, 3, 4)).astype(np.float32)
        want = reference.forward(reference.new_state(), x, last_only=False)
        close(fast.forward(fast.new_state(), x, last_only=False), want)
        close(fast.forward(fast.new_state(), x), want[-1:])


@pytest.mark.thorough
def test_what_sees_a_whole_call_is_not_cut() -> None:
    norm = BatchNorm1d(num_features=WIDTH, track_running_stats=False)
    reference, fast = pair(features((WIDTH,), Dense(in_features=WIDTH, out_features=WIDTH), norm, Entmax()))
    state = fast.new_state()
    for count in (700, 3, *range(4, 20), 3):  # more lengths than programs are kept
        x = rows(count)
        close(fast.forward(state, x, last_only=False), reference.forward(reference.new_state(), x, last_only=False))
        state.reset()


@pytest.mark.thorough
def test_programs_may_be_given_up_within_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraphs, "CACHED_PROGRAMS", 1)
    reference, fast = pair(NETWORKS["late"])
    together, alone = [fast.new_state() for _ in range(3)], [reference.new_state() for _ in range(3)]
    for sizes in ((7, 1, 5), (1, 1, 1), (7, 1, 5)):
        given = [rows(size, size) for size in sizes]
        found = run_all(fast, [SequenceRows(state, x, "all") for state, x in zip(together, given, strict=True)])
        for got, state, x in zip(found, alone, given, strict=True):
            close(got, reference.forward(state, x, last_only=False))


def test_weights_stay_packed_but_those_that_programs_read() -> None:
    network = NETWORKS["convolution"]
    _, fast = pair(network, "int4:g32")
    _, plain = pair(deep(Dense(in_features=WIDTH, out_features=WIDTH)), "int4:g32")
    assert fast.memory.weights <= plain.memory.weights + 4 * (4 * 4 * 3 + 4)
    assert fast.memory.weights < 0.5 * pair(network)[1].memory.weights


def speaker(*layers: LayerSpec) -> Network:
    middle = (LSTM(input_size=8, hidden_size=8), *layers)
    return chain(Embedding(num_embeddings=11, embedding_dim=8), *middle, Dense(in_features=8, out_features=11))


@pytest.mark.thorough
@pytest.mark.parametrize("inner", [ShortConv(embed_dim=WIDTH), None], ids=["convolution", "delay"])
def test_sequences_of_equal_rows_run_side_by_side(inner: LayerSpec | None) -> None:
    """As many launches for four sequences as for one, and for each the numbers that it has alone."""
    reference, fast = pair(deep(inner) if inner is not None else deep(Entmax(), links=(late(0, 1, 2),)))
    together, alone = [fast.new_state() for _ in range(5)], [reference.new_state() for _ in range(5)]
    for sizes in ((3, 3, 3, 3, 2), (1, 1, 1, 1, 1), (6, 6, 1, 6, 6)):
        given = [rows(size, 7 * i + size) for i, size in enumerate(sizes)]
        found = run_all(fast, [SequenceRows(state, x, "all") for state, x in zip(together, given, strict=True)])
        for got, state, x in zip(found, alone, given, strict=True):
            close(got, reference.forward(state, x, last_only=False))

    def launches(lengths: tuple[int, ...]) -> int:
        fast._subgraphs.prepare(lengths)
        count = fast.recordings.count([SequenceSpan(i + 1, 0, rows) for i, rows in enumerate(lengths)])
        return sum("move" in one.dispatch.kernel or "graph" in one.dispatch.kernel
                   for one in fast.recordings.entries("whole", count))  # fmt: skip

    assert launches((1, 1, 1, 1)) <= launches((1,))
    assert launches((4, 4)) <= launches((4,))


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 3])
def test_greedy_decoding_stays_on_the_device(count: int) -> None:
    network = speaker(KMeans(in_features=8, num_clusters=8, temperature=0.3))
    reference, fast = pair(network)
    states, alone = [fast.new_state() for _ in range(count)], [reference.new_state() for _ in range(count)]
    prompts = [np.arange(2 + i, dtype=np.int32) for i in range(count)]
    first = [int(fast.forward(state, x)[0].argmax()) for state, x in zip(states, prompts, strict=True)]
    assert first == [int(reference.forward(state, x)[0].argmax()) for state, x in zip(alone, prompts, strict=True)]
    sent, send = [], fast._executor.send
    fast._executor.send = lambda begun: sent.append(1) or send(begun)
    found = list(islice(fast.greedy(states, first), 9))
    assert found == list(islice(reference.greedy(alone, first), 9))
    assert len(sent) >= 9  # encoded ahead, two tokens in flight
    assert [state.position for state in states] == [state.position for state in alone]


@pytest.mark.thorough
@pytest.mark.parametrize("lengths", [(3,), (2, 5, 2)])
def test_noise_by_the_place_of_a_row_is_drawn_on_the_device(lengths: tuple[int, ...]) -> None:
    reference, fast = pair(speaker(GumbelSoftmax(seed=4)))
    states, alone = [fast.new_state() for _ in lengths], [reference.new_state() for _ in lengths]
    prompts = [np.arange(1, n + 1, dtype=np.int32) for n in lengths]
    found = run_all(fast, [SequenceRows(state, x, "all") for state, x in zip(states, prompts, strict=True)])
    for got, other, x in zip(found, alone, prompts, strict=True):
        close(got, reference.forward(other, x, last_only=False))
    sent, send = [], fast._executor.send
    fast._executor.send = lambda begun: sent.append(1) or send(begun)
    tokens = [5] * len(lengths)
    assert list(islice(fast.greedy(states, tokens), 9)) == list(islice(reference.greedy(alone, tokens), 9))
    assert len(sent) >= 9  # encoded ahead, two tokens in flight


def test_a_loop_of_links_decodes_greedily() -> None:
    again = Link(kind="activation", source=Coord(0, slot=1), target=Coord(0, slot=1), combine="add", delay=1)
    network = chain(
        Embedding(num_embeddings=11, embedding_dim=8), Dense(in_features=8, out_features=8),
        Dense(in_features=8, out_features=11), links=(again,),
    )  # fmt: skip
    reference, fast = pair(network)
    assert list(islice(fast.greedy([fast.new_state()], [5]), 9)) == list(
        islice(reference.greedy([reference.new_state()], [5]), 9)
    )


@pytest.mark.thorough
def test_a_profile_has_operations_on_rows_and_programs() -> None:
    _, fast = pair(NETWORKS["convolution"])
    state = fast.new_state()
    fast.forward(state, rows(3))
    *kinds, whole = fast.step_times([state], 1, repeats=1)
    assert (whole.label, whole.count) == (WHOLE, sum(kind.count for kind in kinds))
    assert {"matvec", "graph/gemm", "move_rows"} <= {kind.label.split()[0] for kind in kinds}


def test_a_token_is_one_pass_with_programs_between() -> None:
    _, fast = pair(features((WIDTH,), Dense(in_features=WIDTH, out_features=WIDTH), Entmax()))
    names = [call.name for call in fast.recordings.calls("whole", CallRows(1, 1, 0, 1, (1,)))]
    assert names == ["matvec", "graph/entmax", "move_rows"]


@pytest.mark.thorough
def test_edges_of_programs_are_one_product_whatever_their_clocks() -> None:
    network = direct("cross")
    reference, fast = pair(network)
    cores_of = [part.graph for part in fast._partition.segments if part.graph is not None]
    [scan] = [node for graph in cores_of for node in graph.nodes if node.op == "scan"]
    assert [node.op for node in scan.attrs["body"].nodes].count("cross_attend") == 1
    x = np.random.default_rng(0).standard_normal((1, 2)).astype(np.float32)
    close(fast.forward(fast.new_state(), x), reference.forward(reference.new_state(), x))
