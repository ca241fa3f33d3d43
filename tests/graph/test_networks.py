"""Whole networks as graphs against the reference device: links, shared weights, batches of sequences, states."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.networks import tiny_llama
from tests.oracles.network import NumpyNetwork
from tests.runtime.test_delays import LOOPS
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.graph.cleanup_passes import fuse_activations
from volumetric.graph.liveness import check_order, last_use, scratch_tensors, view_roots
from volumetric.graph.numpy_graphs import NumpyStore
from volumetric.layers import (
    GRU,
    LSTM,
    RNN,
    Conv2d,
    Dense,
    Embedding,
    Gate,
    GumbelSoftmax,
    LayerSpec,
    MultiHeadAttention,
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
from volumetric.run import lower
from volumetric.run.graph import EmitOptions, emit_plan, graph_of


def chain(*layers: LayerSpec, shape: tuple[int, ...] = (), links: tuple[Link, ...] = ()) -> Network:
    return Network(
        grid=Grid(1, slots=len(layers)),
        layers={Coord(0, slot=i): spec for i, spec in enumerate(layers)},
        links=links,
        input_shape=shape,
        input_dtype="float32" if shape else "int32",
    )


def wired() -> Network:
    """Activation links that add and replace, shared weights, a skip to the input, and a disabled layer."""
    dense = Dense(in_features=5, out_features=5, activation="tanh")
    at = [Coord(0, slot=i) for i in range(6)]
    links = (
        Link(kind="activation", source=at[0], target=at[2]),
        Link(kind="activation", source=at[1], target=at[4], combine="replace"),
        Link(kind="shared", source=at[0], target=at[3]),
        Link(kind="shared", source=at[3], target=at[5], param="weight", source_param="weight"),
    )
    network = chain(dense, dense, Residual(source="input"), dense, dense, dense, shape=(5,), links=links)
    return dataclasses.replace(network, disabled=frozenset({at[1]}))


def experts() -> Network:
    recurrent = LSTM(input_size=6, hidden_size=6)
    gate = Gate(in_features=6, out_features=3, top_k=2)
    mixed = Parallel(branches=(recurrent, Dense(in_features=6, out_features=6), recurrent), combine="filter", gate=gate)
    return chain(
        Embedding(num_embeddings=11, embedding_dim=6, scale=2.0),
        PositionEmbedding(num_embeddings=8, embedding_dim=6, offset=1),
        mixed,
        MultiHeadAttention(embed_dim=6, num_heads=2, causal=False),
        Residual(),
        Sequential(layers=(RMSNorm(num_features=6), GRU(input_size=6, hidden_size=4))),
        GumbelSoftmax(seed=3, axis=1),
    )


def images() -> Network:
    return chain(
        Conv2d(in_channels=2, out_channels=3, kernel_size=3, padding=1, activation="relu"),
        Reshape(shape=(6, -1)),
        RNN(input_size=8, hidden_size=3),
        Reshape(shape=(-1,)),
        Parallel(
            branches=(Dense(in_features=18, out_features=4), Dense(in_features=18, out_features=4)), combine="avg"
        ),
        Softmax(),
        shape=(2, 4, 4),
    )


NETWORKS = {"llama": tiny_llama(), "wired": wired(), "experts": experts(), "images": images()}


def reference(network: Network) -> NumpyNetwork:
    return NumpyNetwork.of(network, initialise(network, seed=4))


def inputs_of(network: Network, *lead: int) -> np.ndarray:
    rng = np.random.default_rng(8)
    if network.input_dtype == "int32":
        return rng.integers(0, 11, (*lead, *network.input_shape)).astype(np.int32)
    return rng.standard_normal((*lead, *network.input_shape))


def store_of(network: Network) -> NumpyStore:
    store = NumpyGraphs(np.float64).store()
    for key, weight in initialise(network, seed=4).items():
        store.write(key, weight.values())
    return store


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_and_its_gradients_agree_with_the_reference(name: str) -> None:
    network = NETWORKS[name]
    run = reference(network)
    x = inputs_of(network, 7)
    values, tape = run.trace(x)
    want = values[run.plan.outputs["output"]]
    gy = np.random.default_rng(1).standard_normal(want.shape)
    _, wanted = run.vjp(values, tape, gy)
    work = GraphBuilder()
    given = work.input("x", x.shape, "int32" if x.dtype == np.int32 else "float32")
    y = emit_plan(work, run.plan, {"input": given}).outputs["output"]
    params = {key: work.stored_tensor(key, shape) for key, shape in run.plan.params.items()}
    grads = differentiate(work, {y: work.input("gy", gy.shape)}, params.values())
    graph = work.finish([y, *(grads[i] for i in params.values())])
    out, *found = NumpyGraphs(np.float64).compile(graph, store_of(network)).run([x, gy])
    close(out, want)
    assert set(params) == set(wanted)
    for key, grad in zip(params, found, strict=True):
        close(grad, wanted[key])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("count", [3, 1, 0])
def test_sequences_of_a_batch_are_computed_as_if_alone(name: str, count: int) -> None:
    network = NETWORKS[name]
    run = reference(network)
    x = inputs_of(network, count, 5)
    program = NumpyGraphs(np.float64).compile(graph_of(network, 5, sequences=count), store_of(network))
    [got] = program.run([x])
    wanted = [run.output(one) for one in x]
    close(got, np.array(wanted).reshape(got.shape) if count else np.zeros((0, *got.shape[1:])))


def test_weights_may_come_from_elsewhere() -> None:
    network = wired()
    work = GraphBuilder()
    asked: list[str] = []

    def rounded(key: str, shape: tuple[int, ...]) -> int:
        asked.append(key)
        return work.fake_quant(work.stored_tensor(key, shape), "int8:g32")

    emit_plan(work, lower(network), {"input": work.input("x", (3, 5))}, EmitOptions(param=rounded))
    assert set(asked) == set(lower(network).params)
    with pytest.raises(ShapeError, match="rows of shape"):
        emit_plan(work, lower(network), {"input": work.input("x", (3, 6))})
    with pytest.raises(ShapeError, match="rows of shape"):
        emit_plan(work, lower(network), {"input": work.input("x", (2, 3, 5))}, EmitOptions(sequences=4))


def test_a_link_with_a_delay_shifts_each_sequence() -> None:
    network = LOOPS["ahead"]
    x = inputs_of(network, 2, 5)
    program = NumpyGraphs(np.float64).compile(graph_of(network, 5, sequences=2), store_of(network))
    want = [reference(network).output(part) for part in x]
    close(program.run([x])[0], np.array(want))
    with pytest.raises(UnsupportedError, match="loop"):
        graph_of(LOOPS["self"], 3)


def test_positions_beyond_the_table_are_refused() -> None:
    with pytest.raises(ShapeError, match="position 8 is beyond the 8 learned positions"):
        graph_of(experts(), 8)


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_move_into_products_without_changing_a_bit(name: str) -> None:
    network = NETWORKS[name]
    work = GraphBuilder()
    given = inputs_of(network, 5)
    x = work.input("x", given.shape, "int32" if given.dtype == np.int32 else "float32")
    plain = work.finish([emit_plan(work, lower(network), {"input": x}).outputs["output"]])
    fused = fuse_activations(plain)
    check_order(fused)
    kinds = [[node.op for node in graph.nodes] for graph in (plain, fused)]
    assert len(kinds[0]) - len(kinds[1]) == sum(
        node.op == "gemm" and node.attrs["activation"] != "linear" for node in fused.nodes
    )
    x, store = given, store_of(network)
    device = NumpyGraphs(np.float64)
    before, after = (device.compile(graph, store).run([x])[0] for graph in (plain, fused))
    np.testing.assert_array_equal(before, after)


def test_activations_are_fused_where_there_are_any() -> None:
    fused = fuse_activations(graph_of(tiny_llama(), 5))
    assert sum(node.op == "gemm" and node.attrs["activation"] == "silu" for node in fused.nodes) == 2


def test_every_tensor_is_made_before_it_is_read() -> None:
    for network in NETWORKS.values():
        graph = graph_of(network, 5)
        ready = {*graph.inputs, *graph.constants} | {i for i, t in enumerate(graph.tensors) if t.key is not None}
        root, last = view_roots(graph), last_use(graph)
        for at, node in enumerate(graph.nodes):
            assert set(node.inputs) <= ready
            assert all(last[i] >= at and last[root[i]] == last[i] for i in node.inputs)
            ready.update(node.outputs)
        assert all(last[i] == len(graph.nodes) for i in graph.outputs)
        assert not {*scratch_tensors(graph)} & {*graph.inputs, *graph.constants}
