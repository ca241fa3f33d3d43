"""Products of groups of different sizes become one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.devices import graphs
from tests.graph.agreement import agree
from volumetric import fabric
from volumetric.devices.gpu.graph.joined_groups import join_groups
from volumetric.fabric import Blueprint, Input, Interface, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.run.graph.network_graph import graph_of, resumed_states
from volumetric.run.lower import lower

RNG = np.random.default_rng(2)


def parts(sizes: tuple[tuple[int, int], ...], *, first: int = 0, apart: bool = False) -> tuple[Graph, list[np.ndarray]]:
    """Products of nodes from `first` on, in groups of so many; each size comes so many times."""
    work, batch, made, at = GraphBuilder(), 2, [], first
    total = sum(sets * count for sets, count in sizes)
    shapes = [(first + total + int(apart), batch, 3), *((sets, 3, 5) for sets, _ in sizes)]
    x, *weights = (work.input("x", shape) for shape in shapes)
    for weight, (sets, count) in zip(weights, sizes, strict=True):
        start = at + int(apart and made != [])
        own = work.part(x, 0, start, start + sets * count)
        y = work.gemm(work.reshape(own, (sets, count * batch, 3)), weight)
        made.append(work.reshape(y, (sets * count, batch, 5)))
        at += sets * count
    return work.finish([work.concat(made, 0)]), [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(
    ("sizes", "first", "apart", "products"),
    [
        (((2, 3), (1, 4)), 0, False, 1),
        (((1, 1), (3, 2), (1, 5)), 2, False, 1),
        (((2, 3), (1, 4)), 0, True, 2),  # a node between them has no product
    ],
)
def test_products_of_groups(sizes: tuple[tuple[int, int], ...], first: int, apart: bool, products: int) -> None:
    graph, inputs = parts(sizes, first=first, apart=apart)
    assert Counter(node.op for node in join_groups(graph).nodes)["gemm"] == products
    want = NumpyGraphs(np.float64)
    [right] = want.compile(graph, want.store()).run(inputs)
    [got] = graphs("gpu").compile(graph, graphs("gpu").store()).run(inputs)
    agree(got, right.astype(np.float32), "products")


@pytest.mark.thorough
def test_a_row_of_a_fabric_is_ten_launches() -> None:
    sheet = lattice2d.Graph(width=8, height=8, populations={"core": Population(cell=SLSTM(hidden=4))})
    ends = {"inputs": {"input": Input(3)}, "outputs": {"output": Output(2)}}
    network = fabric.compile(Blueprint(graph=sheet, interface=Interface(4, 4), **ends)).network
    device = graphs("gpu")

    def launches(rows: int) -> int:
        graph, store = graph_of(network, rows, sequences=2, resumes=True), device.store()
        for key, tensor in graph.tensors_by_key.items():
            store.write(key, np.zeros(tensor.shape, np.float32))
        assert set(store.keys()) >= resumed_states(lower(network)).keys()
        return len(device.compile(graph, store).recording.entries)

    assert launches(13) - launches(7) <= 6 * 10 + 1  # what is handed out is joined six rows at a time
