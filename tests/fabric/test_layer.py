"""Fabrics as layers beside themselves node by node; forms of neighbourhoods; what depends on what, and when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, graphs
from tests.examples.fabrics import FREE, MIXED, SHARED, small
from tests.fabric.oracle import Stream
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.fabric.layer import emit_fabric as fabric
from volumetric.fabric.layer import messages as fabric_edges
from volumetric.fabric.layer.cell_populations import RNN, SLSTM, CellPopulation, InPort
from volumetric.fabric.layer.edge_rules import Annulus, Columns, LocalRadius
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_latency import latency
from volumetric.fabric.layer.node_sets import XBand
from volumetric.graph import differentiate, interpret
from volumetric.graph.build import GraphBuilder
from volumetric.layers.emit_scope import Scope
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run.graph import graph_of

RESETS = np.array([[0, 0, 1, 0, 0], [0, 1, 0, 0, 1]])
CASES = {"plain": small(), "mixed": MIXED, "shared": SHARED, "free": FREE}


def alone(spec: Fabric) -> Network:
    width = sum(port.dim for port in spec.inputs)
    return Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=(width,), input_dtype="float32")


def given(spec: Fabric, rows: int = 5) -> tuple[dict[str, np.ndarray], np.ndarray]:
    return arrays(spec, (2, rows, sum(port.dim for port in spec.inputs)), seed=3)


def told(spec: Fabric, p: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Rows of both streams, by the layer in NumPy."""
    return oracle(spec).forward(p, x, memory=Memory(streams=2, resets=RESETS[:, : x.shape[1]]))[0]


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_what_its_nodes_are(name: str) -> None:
    spec = CASES[name]
    p, x = given(spec)
    y = told(spec, p, x)
    for b in range(2):
        stream = Stream(spec, p)
        for t in range(x.shape[1]):
            if RESETS[b, t]:
                stream.reset()
            np.testing.assert_allclose(y[b, t], stream.row(x[b, t]), rtol=1e-9, atol=1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("where", DEVICES)
def test_dense_neighbourhoods_are_sparse_ones(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(
        graph=Lattice((8, 6)),
        connectivity=(Columns((5, 6)),),
        populations=(CellPopulation("core", RNN(4)),),
        heads=2,
        learn_distance=True,
    )
    p, x = given(spec)
    blocks = fabric._plan(spec).to_cells.blocks
    assert [len(block.receivers) for block in blocks] == [24]  # of 36
    found = {}
    for dense in (fabric_edges.DENSE, 1000):
        monkeypatch.setattr(fabric_edges, "DENSE", dense)
        found[dense] = forward_and_back(where, spec, p, x)
    for one, other in zip(*found.values(), strict=True):
        scale = max(np.abs(other).max(), 1e-3)
        np.testing.assert_allclose(one / scale, other / scale, rtol=0, atol=1e-6)


def forward_and_back(where: str, spec: Fabric, p: dict[str, np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """Rows, and the gradients of their sum of squares by parameters and rows."""
    work = GraphBuilder()
    rows = work.input("x", x.shape)
    params = {name: work.stored_tensor(name, value.shape) for name, value in p.items()}
    scope = Scope(work=work, param=lambda name, _: params[name], path="f", sequences=2)
    y = scope.emit(spec, rows)
    grads = differentiate(work, {y: y}, [*params.values(), rows])
    graph = work.finish([y, *grads.values()])
    store = graphs(where).store()
    for name, value in p.items():
        store.write(name, value.astype(np.float32))
    return graphs(where).compile(graph, store).run([x.astype(np.float32)])


@pytest.mark.parametrize("inner", [1, 2])
def test_latency_is_when_an_output_first_moves(inner: int) -> None:
    spec = small(
        graph=Lattice((7, 2)),
        inputs=(InPort("near", (8,), 1), InPort("far", XBand("low"), 2)),
        populations=(CellPopulation("core", SLSTM(4)),),
        connectivity=(LocalRadius(1.0), Annulus(1.5, 2.0, 1, 3)),
        inner_steps=inner,
    )
    p, x = given(spec, 9)
    p = {name: value + 0.1 for name, value in p.items()}
    y = oracle(spec).forward(p, x)[0]
    for name, (first, last) in spec.ports("inputs").items():
        moved = x.copy()
        moved[:, 2, first:last] += 1
        change = np.abs(oracle(spec).forward(p, moved)[0] - y).max((0, 2))
        expected = latency(spec.facts, name, "y", inner)
        assert expected is not None
        assert np.flatnonzero(change)[0] == 2 + expected


@pytest.mark.parametrize("name", ["mixed", "free"])
def test_rows_in_any_cut_are_the_same(name: str) -> None:
    spec = CASES[name]
    p, x = given(spec)
    whole = told(spec, p, x)
    memory = Memory(streams=2)
    parts = []
    for first, last in ((0, 1), (1, 4), (4, 4), (4, 5)):
        now = Memory(first, memory.values, streams=2, resets=RESETS[:, first:last])
        parts.append(oracle(spec).forward(p, x[:, first:last], memory=now)[0])
    np.testing.assert_array_equal(np.concatenate(parts, 1), whole)


def test_inner_steps_reset_once() -> None:
    spec = small(inner_steps=3)
    p, x = given(spec)
    fresh, begun = oracle(spec).forward(p, x[:, 2:])[0], told(spec, p, x)
    np.testing.assert_allclose(begun[0, 2:], fresh[0], rtol=1e-12)
    assert np.abs(fresh[0, 1] - fresh[0, 0]).max() > 1e-6  # what a row leaves counts


def test_fresh_weights_of_a_population_are_alike_and_apart() -> None:
    p = initialise(alone(small()))
    weight = p["0.0.0.0/cells.core.ih.weight"].values()
    assert weight.shape[0] == 6
    assert 0.01 < (weight - weight.mean(0)).std() < 0.03 < weight.mean(0).std()
    cost = initialise(alone(small(learn_distance=True)))["0.0.0.0/distance"].values()
    np.testing.assert_allclose(np.log1p(np.exp(cost)), 0.5, rtol=1e-6)


@pytest.mark.thorough
def test_a_network_of_a_fabric_is_its_declaration() -> None:
    for spec in CASES.values():
        network = alone(spec)
        text = network.to_json()
        assert Network.from_json(text) == network
        assert len(text) < 2500
    huge = alone(small(graph=Lattice((300, 300), True)))
    assert len(huge.to_json()) < 1500


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_what_is_odd_stays_in_its_stream_and_a_reset_heals_it(where: str) -> None:
    spec = MIXED
    p, x = given(spec)
    x[0, 1] = np.nan
    graph = graph_of(alone(spec), 5, sequences=2, resets=True)
    store = graphs(where).store()
    for name, value in p.items():
        store.write(f"0.0.0.0/{name}", value.astype(np.float32))
    program = graphs(where).compile(graph, store)
    rows: list[Any] = [x.astype(np.float32), RESETS.astype(np.float32)]
    [y] = program.run(rows)
    assert np.isnan(y[0, 1]).any()
    assert np.isfinite(y[0, 2:]).all()
    assert np.isfinite(y[1]).all()
    [want] = interpret(graph, rows, {f"0.0.0.0/{name}": value for name, value in p.items()}, np.float64)
    np.testing.assert_allclose(y[:, 2:], want[:, 2:], atol=2e-5)
