"""Every layer on every fast device, with what sequences remember, against the reference device."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from tests.devices import FAST, device
from tests.examples import CASES
from tests.graph.test_networks import experts, images, wired
from tests.networks import tiny_llama
from tests.pieces import one_row_each
from volumetric.base.errors import DeviceError, GenerationError, ShapeError
from volumetric.devices.reference_device import ReferenceDevice, ReferenceExecutable
from volumetric.devices.reference_state import ReferenceState
from volumetric.layers import (
    LSTM,
    Conv1d,
    Dense,
    Embedding,
    Gate,
    LayerSpec,
    MultiHeadAttention,
    Parallel,
    PositionEmbedding,
    Rope,
    Sequential,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids
from volumetric.run.device import Executable, State

OPTIONS = RunOptions(context=64)


def one(name: str) -> Network:
    """A network of one layer, of `tests.examples`."""
    spec, shape = CASES[name]
    return Network(
        grid=Grid(1),
        layers={Coord(0): Sequential(layers=(spec,))},
        input_shape=shape[1:],
        input_dtype="int32" if isinstance(spec, Embedding) else "float32",
    )


def decoder(*layers: LayerSpec) -> Network:
    """Tokens to logits of 13 classes through `layers` of width 8."""
    stack = (Embedding(num_embeddings=13, embedding_dim=8), *layers, Dense(in_features=8, out_features=13))
    return Network(grid=Grid(len(stack)), layers={Coord(z): spec for z, spec in enumerate(stack)})


def mixed() -> Network:
    """Experts of which one attends, so that keys and values are remembered inside of a container."""
    attention = MultiHeadAttention(embed_dim=8, num_heads=2, num_kv_heads=1, rope=Rope(dim=4), window=5, qk_norm=True)
    lstm = LSTM(input_size=8, hidden_size=8)
    gate = Gate(in_features=8, out_features=2)
    return decoder(
        MultiHeadAttention(embed_dim=8, num_heads=2), Parallel(branches=(attention, lstm), combine="filter", gate=gate)
    )


NETWORKS = {
    **{name: lambda name=name: one(name) for name in CASES},
    "wired": wired,
    "images": images,
    "experts": experts,
    "mixed": mixed,
    "llama": tiny_llama,
}


def rows(network: Network, count: int, rng: np.random.Generator) -> np.ndarray:
    if network.input_dtype == "int32":
        return rng.integers(0, 6, count).astype(np.int32)
    return rng.standard_normal((count, *network.input_shape)).astype(np.float32)


def pair(network: Network, name: str, scheme: str | None = None) -> tuple[ReferenceExecutable, Executable]:
    plan, params = lower(network), initialise(network, 3)
    if scheme is not None:
        network.morph(params, scheme, keep_masters=False)
    return ReferenceDevice().compile(plan, params, OPTIONS), device(name).compile(plan, params, OPTIONS)


def same(a: ReferenceExecutable, b: Executable, states: tuple[ReferenceState, State], x: np.ndarray) -> None:
    want, got = a.forward(states[0], x, last_only=False), b.forward(states[1], x, last_only=False)
    assert got.shape == want.shape
    assert states[0].position == states[1].position
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(0.1, float(np.abs(want).max(initial=0))))


def remembers(which: str) -> bool:
    return which not in CASES or bool(lower(NETWORKS[which]()).states)


FIRST = {(spec.kind, remembers(which)): which for which, (spec, _) in reversed(CASES.items())}.values()
"""A case of each kind of layer, and one more of those with a state, where only some have one."""
OPTIONS_OF_STATES = ("mqa-partial-rope", "qk-norm-over-all", "qk-norm-own", "temperature", "sinks", "chunk")
"""Attention that a GPU lays out otherwise; `tests.gpu.test_attention` has the other options over a cache."""
ON = {
    "cpu": [which for which in NETWORKS if which in FIRST or remembers(which)],
    # What keeps no state is run by a GPU in the parity suite: here it would compile the same pipelines again.
    "gpu": [
        which
        for which in NETWORKS
        if remembers(which) and (which in FIRST or which in OPTIONS_OF_STATES or which not in CASES)
    ],
}
"""Networks of each device. The parity suite runs all cases on both, from no state: what a state adds is of its kind."""


@pytest.mark.thorough
@pytest.mark.parametrize(("which", "name"), [(which, name) for name in FAST for which in ON[name]])
def test_calls_trims_and_forks_agree_with_the_reference(which: str, name: str, rng: np.random.Generator) -> None:
    network = NETWORKS[which]()
    reference, fast = pair(network, name)
    here = reference.new_state(), fast.new_state()
    for count in (2, 1, 2):  # a program is compiled for each number of rows
        same(reference, fast, here, rows(network, count, rng))
    there = here[0].fork(), here[1].fork()
    fixed = any(spec.kind == "fixed" for spec in reference.plan.states.values())
    for state in here:
        with pytest.raises(GenerationError, match="has only the value") if fixed else nullcontext():
            state.trim(2)
        assert state.position == (5 if fixed else 2)
    x = rows(network, 1, rng)
    same(reference, fast, here, x)
    same(reference, fast, there, x)
    for state in here:
        state.reset()
    last = rows(network, 2, rng)
    want = reference.forward(here[0], last)
    np.testing.assert_allclose(fast.forward(here[1], last), want, atol=1e-5 * max(1, np.abs(want).max()))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_many_tokens_one_by_one_grow_the_memory(name: str, rng: np.random.Generator) -> None:
    reference, fast = pair(mixed(), name)
    states = reference.new_state(), fast.new_state()
    same(reference, fast, states, rows(mixed(), 14, rng))
    for _ in range(22):  # over 16 and over 32 remembered rows
        same(reference, fast, states, rows(mixed(), 1, rng))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_greedy_decoding_and_batches(name: str, rng: np.random.Generator) -> None:
    reference, fast = pair(mixed(), name)
    one, two = reference.new_state(), fast.new_state()
    streams = greedy_ids(reference, one, 5), greedy_ids(fast, two, 5)
    assert [next(streams[0]) for _ in range(6)] == [next(streams[1]) for _ in range(6)]
    assert one.position == two.position == 6
    states = [fast.new_state() for _ in range(3)]
    for i, state in enumerate(states):
        fast.forward(state, rows(mixed(), i + 1, rng))
    apart = [state.fork() for state in states]
    x = rows(mixed(), 3, rng)
    together = one_row_each(fast, states, x)
    alone = [fast.forward(state, x[i : i + 1])[0] for i, state in enumerate(apart)]
    # On a GPU how products sum depends on the number of rows.
    np.testing.assert_allclose(together, alone, rtol=0, atol=0 if name == "cpu" else 1e-6)


def test_a_network_without_memory_computes_the_last_row_alone(rng: np.random.Generator) -> None:
    network = one("kmeans")
    _, fast = pair(network, "cpu")
    x = rows(network, 4, rng)
    state = fast.new_state()
    whole = fast.forward(fast.new_state(), x, last_only=False)
    np.testing.assert_allclose(fast.forward(state, x), whole[-1:], rtol=1e-6)
    assert state.position == 4


@pytest.mark.parametrize("name", FAST)
def test_what_does_not_fit_is_refused(name: str, rng: np.random.Generator) -> None:
    network = decoder(PositionEmbedding(num_embeddings=6, embedding_dim=8), LSTM(input_size=8, hidden_size=8))
    plan, params = lower(network), initialise(network)
    fast = device(name).compile(plan, params, RunOptions(context=8))
    state = fast.new_state()
    with pytest.raises(ShapeError, match="at least one row"):
        fast.forward(state, np.zeros(0, np.int32))
    with pytest.raises(ShapeError, match="int32"):
        fast.forward(state, np.full(3, 0.5, np.float32))
    with pytest.raises(GenerationError, match="outside of the vocabulary of 13"):
        fast.forward(state, np.array([1, 13], np.int32))
    with pytest.raises(GenerationError, match="9 more do not fit its 8"):
        fast.forward(state, np.zeros(9, np.int32))
    with pytest.raises(GenerationError, match="exceed the 6 positions"):
        fast.forward(state, np.zeros(7, np.int32))
    assert state.position == 0
    fast.forward(state, np.zeros(6, np.int32))
    fast.close()


@pytest.mark.parametrize("name", FAST)
def test_a_closed_executable_says_so(name: str) -> None:
    _, fast = pair(images(), name)
    state = fast.new_state()
    fast.close()
    with pytest.raises(DeviceError, match="closed"):
        fast.forward(state, np.zeros((1, 2, 4, 4), np.float32))


def test_memory_counts_weights_and_caches() -> None:
    _, fast = pair(mixed(), "cpu")
    elements = sum(np.prod(spec.shape) for spec in mixed().param_specs().values())
    assert 4 * elements <= fast.memory.weights < 8 * elements  # rows are padded to panels
    assert fast.memory.state_per_token == 4 * 2 * (2 * (4 + 16) // 2 + 1 * (4 + 16) // 2)  # heads of 4, values padded


@pytest.mark.parametrize("name", FAST)
def test_programs_that_are_not_used_go(name: str, rng: np.random.Generator) -> None:
    network = Network(
        grid=Grid(1),
        layers={Coord(0): Conv1d(in_channels=1, out_channels=1, kernel_size=2)},
        input_shape=(1, 3),
        input_dtype="float32",
    )
    reference, fast = pair(network, name)
    for count in range(1, 36):
        same(reference, fast, (reference.new_state(), fast.new_state()), rows(network, count, rng))
    scratch = fast.memory.scratch
    same(reference, fast, (reference.new_state(), fast.new_state()), rows(network, 1, rng))
    assert fast.memory.scratch <= scratch
