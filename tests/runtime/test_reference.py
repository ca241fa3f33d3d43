"""The oracle: whole networks forward and backward, and its state."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.test_vjp import TOLERANCE, arrays, differences
from tests.networks import tiny_llama
from tests.oracles import oracle
from tests.oracles.network import NumpyNetwork
from volumetric.base.errors import GenerationError, UnsupportedError
from volumetric.devices import open_device
from volumetric.devices.reference_device import ReferenceDevice, ReferenceExecutable
from volumetric.layers import (
    GRU,
    LSTM,
    RNN,
    Conv2d,
    ConvTranspose2d,
    Dense,
    Embedding,
    Entmax,
    Gate,
    GumbelSoftmax,
    KMeans,
    LayerSpec,
    MixtureSoftmax,
    Parallel,
    PositionEmbedding,
    Reshape,
    Residual,
    RMSNorm,
    Sequential,
    Softmax,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

IDS = np.array([5, 17, 3, 96, 0, 41, 41, 8], np.int32)


def compile_tiny(dtype: type = np.float32, **options) -> ReferenceExecutable:
    network = tiny_llama()
    return ReferenceDevice(dtype).compile(lower(network), initialise(network, seed=1), RunOptions(**options))


def test_one_row_at_a_time_equals_all_at_once_in_any_split() -> None:
    executable = compile_tiny(np.float64)
    whole = executable.forward(executable.new_state(), IDS, last_only=False)
    for cuts in ((1,) * 8, (3, 5), (7, 1), (1, 2, 5)):
        state = executable.new_state()
        ends = list(itertools.accumulate(cuts))
        parts = [executable.forward(state, IDS[b - n : b], last_only=False) for n, b in zip(cuts, ends, strict=True)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-6)


def test_last_only_is_the_last_row() -> None:
    executable = compile_tiny()
    whole = executable.forward(executable.new_state(), IDS, last_only=False)
    last = executable.forward(executable.new_state(), IDS)
    assert last.shape == (1, 97)
    np.testing.assert_allclose(last[0], whole[-1], rtol=0, atol=1e-6)


def test_trim_forgets_and_fork_copies() -> None:
    executable = compile_tiny()
    state = executable.new_state()
    executable.forward(state, IDS)
    other = state.fork()
    state.trim(3)
    assert (state.position, other.position) == (3, 8)
    again = executable.forward(state, IDS[3:])
    fresh = executable.forward(executable.new_state(), IDS)
    np.testing.assert_allclose(again, fresh, rtol=0, atol=1e-6)
    executable.forward(other, IDS[:1])
    assert np.array_equal(executable.forward(state.fork(), IDS[:2]), executable.forward(state, IDS[:2]))
    state.reset()
    assert state.position == 0
    assert np.array_equal(executable.forward(state, IDS), fresh)


def test_greedy_counts_only_what_was_fed() -> None:
    executable = compile_tiny()
    state = executable.new_state()
    ids = list(itertools.islice(greedy_ids(executable, state, 5), 4))
    assert state.position == 4
    fed = np.array([5, *ids[:3]], np.int32)
    expected = executable.forward(executable.new_state(), fed, last_only=False).argmax(-1)
    assert ids == expected.tolist()


def test_an_id_beyond_the_vocabulary_is_named() -> None:
    executable = compile_tiny()
    with pytest.raises(GenerationError, match="token id 97 at position 1 is outside of the vocabulary of 97"):
        executable.forward(executable.new_state(), np.array([0, 97]))


def test_int8_activations_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="does not round to int8"):
        compile_tiny(compute="int8")


def test_open_device_knows_it() -> None:
    assert open_device("reference").info.kind == "reference"


def every_join() -> Network:
    """Links of both kinds, shared weights, nested containers, a disabled slot, and residuals of every source."""
    dense = Dense(in_features=4, out_features=4, activation="tanh")
    inner = Sequential(layers=(RMSNorm(num_features=4), dense, Residual(source="input"), Softmax(), Residual()))
    layers = [
        dense,
        dense,
        Residual(),
        Parallel(branches=(inner, dense), combine="add"),
        Residual(source="input"),
        Parallel(branches=(dense, inner), combine="avg"),
        Softmax(),
        Residual(source="1.0.0.0"),
        Parallel(branches=(dense, inner)),
    ]
    links = (
        Link(kind="shared", source=Coord(0), target=Coord(1)),
        Link(kind="shared", source=Coord(0), target=Coord(5), param="0/weight", source_param="weight"),
        Link(kind="activation", source=Coord(0), target=Coord(3), combine="add"),
        Link(kind="activation", source=Coord(2), target=Coord(5), combine="replace"),
        Link(kind="activation", source=Coord(4), target=Coord(5), combine="replace"),
    )
    return Network(
        grid=Grid(len(layers)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        links=links,
        disabled=frozenset({Coord(6)}),
        input_shape=(4,),
        input_dtype="float32",
    )


def chain(input_shape: tuple[int, ...], *layers: LayerSpec, links: tuple[Link, ...] = ()) -> Network:
    return Network(
        grid=Grid(len(layers)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        links=links,
        input_shape=input_shape,
        input_dtype="float32",
    )


def images_to_classes() -> Network:
    return chain(
        (1, 4, 3),
        Conv2d(in_channels=1, out_channels=2, kernel_size=3, padding=1, activation="tanh"),
        ConvTranspose2d(in_channels=2, out_channels=2, kernel_size=3, padding=1),
        Residual(),
        Softmax(axis=1),
        Reshape(shape=(-1,)),
        Dense(in_features=24, out_features=4),
        KMeans(num_clusters=3, in_features=4),
    )


def sequence_through_experts() -> Network:
    """Experts that remember, one of them with the weights of a layer before."""
    experts = (Dense(in_features=4, out_features=4), GRU(input_size=4, hidden_size=4), RNN(input_size=4, hidden_size=4))
    return chain(
        (4,),
        Dense(in_features=4, out_features=4),
        LSTM(input_size=4, hidden_size=4),
        Parallel(branches=experts, combine="filter", gate=Gate(in_features=4, out_features=3, top_k=2)),
        Residual(source="input"),
        Parallel(
            branches=(experts[1], Entmax()), combine="grid_scatter", grid=(1, 1, 3), positions=((0, 0, 2), (0, 0, 0))
        ),
        MixtureSoftmax(components=3),
        links=(Link(kind="shared", source=Coord(0), target=Coord(2), param="0/weight", source_param="weight"),),
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "shape"),
    [(every_join(), (3, 4)), (images_to_classes(), (2, 1, 4, 3)), (sequence_through_experts(), (4, 4))],
    ids=["joins", "images", "experts"],
)
def test_gradients_of_a_whole_network_equal_central_differences(network: Network, shape: tuple[int, ...]) -> None:
    executable = NumpyNetwork.of(network, initialise(network, seed=5))
    x = np.random.default_rng(0).standard_normal(shape)
    values, tape = executable.trace(x)
    y = values[executable.plan.outputs["output"]]
    gy = np.random.default_rng(1).standard_normal(y.shape)
    gx, params = executable.vjp(values, tape, gy)

    def loss() -> float:
        return float((executable.trace(x)[0][executable.plan.outputs["output"]] * gy).sum())

    assert set(params) == set(network.param_specs())
    for got, at in [(gx["input"], x), *((params[key], executable.weights[key]) for key in params)]:
        want = differences(loss, at)
        np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * max(np.abs(want).max(), 1e-3))


def test_experts_that_remember_go_back_by_a_fork() -> None:
    network = sequence_through_experts()
    executable = ReferenceDevice(np.float64).compile(lower(network), initialise(network, seed=5))
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    whole = executable.forward(executable.new_state(), x, last_only=False)
    state = executable.new_state()
    executable.forward(state, x[:2])
    before = state.fork()
    executable.forward(state, x[2:5])
    with pytest.raises(GenerationError, match=r"to 2: 1\.0\.0\.0/h has only the value"):
        state.trim(2)
    state, other = before, state
    np.testing.assert_allclose(executable.forward(state, x[2:], last_only=False), whole[2:], rtol=0, atol=1e-7)
    np.testing.assert_allclose(executable.forward(other, x[5:]), whole[5:], rtol=0, atol=1e-7)
    state.trim(0)
    np.testing.assert_allclose(executable.forward(state, x, last_only=False), whole, rtol=0, atol=1e-7)


def test_a_call_that_fails_leaves_the_state_as_it_was() -> None:
    """The cell has run when the table of positions ends."""
    network = chain((4,), LSTM(input_size=4, hidden_size=4), PositionEmbedding(num_embeddings=3, embedding_dim=4))
    executable = ReferenceDevice().compile(lower(network), initialise(network))
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    state = executable.new_state()
    executable.forward(state, x[:2])
    with pytest.raises(GenerationError, match="beyond the 3 learned positions"):
        executable.forward(state, x[2:])
    whole = executable.forward(executable.new_state(), x[:3])
    np.testing.assert_allclose(executable.forward(state, x[2:3]), whole, rtol=0, atol=1e-6)


def test_a_bidirectional_layer_sees_the_rows_of_its_call_alone() -> None:
    network = tiny_llama(blocks=1)
    attention = network.layers[Coord(1, slot=1)]
    both = network.with_layer(Coord(1, slot=1), dataclasses.replace(attention, causal=False))  # pyright: ignore[reportArgumentType]  (specs are dataclasses)
    plan = lower(both)
    assert not plan.states
    executable = ReferenceDevice().compile(plan, initialise(both))
    state = executable.new_state()
    first = executable.forward(state, IDS, last_only=False)
    changed = IDS.copy()
    changed[-1] = 11
    second = executable.forward(executable.new_state(), changed, last_only=False)
    assert np.abs(first[0] - second[0]).max() > 1e-4
    again = executable.forward(state, IDS, last_only=False)
    np.testing.assert_allclose(again, first, rtol=0, atol=1e-5)  # rope is relative: positions 8… turn alike


def rows_need_their_call(name: str) -> bool:
    """Bidirectional attention sees the rows of its call; samples of a batch have noise by their place in the call.

    A batch norm without running statistics takes those of its call.
    """
    spec, shape = CASES[name]
    noisy = isinstance(spec, GumbelSoftmax) and len(shape) > 2
    return spec.two_way or noisy or spec.batch_statistics == "always"


@pytest.mark.parametrize("name", [name for name in CASES if not rows_need_their_call(name)])
def test_every_layer_gives_the_same_rows_at_once_and_one_by_one(name: str) -> None:
    spec, shape = CASES[name]
    weights, x = arrays(spec, shape, seed=4)
    weights = {key: value.astype(np.float32) for key, value in weights.items()}
    x = x.astype(np.int32 if isinstance(spec, Embedding) else np.float32)
    dtype = "int32" if isinstance(spec, Embedding) else "float32"
    network = Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=shape[1:], input_dtype=dtype)
    params = Params({f"0.0.0.0/{key}": WeightStore.from_array(value) for key, value in weights.items()})
    executable = ReferenceDevice(np.float64).compile(lower(network), params)
    whole = executable.forward(executable.new_state(), x, last_only=False)
    alone = oracle(spec).forward(
        {key: value.astype(np.float64) for key, value in weights.items()}, x if x.ndim == 1 else x.astype(np.float64)
    )
    np.testing.assert_allclose(whole, alone[0], rtol=0, atol=1e-6)
    state = executable.new_state()
    single = [executable.forward(state, row[None]) for row in x]
    np.testing.assert_allclose(np.concatenate(single), whole, rtol=0, atol=1e-6)
    state.trim(0)
    np.testing.assert_allclose(executable.forward(state, x), whole[-1:], rtol=0, atol=1e-6)
