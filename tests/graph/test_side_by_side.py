"""Several sequences in one graph: the numbers that each has alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.op_cases import OP_CASES
from tests.graph.op_cases.case import OpCase
from tests.graph.test_networks import NETWORKS, inputs_of, store_of
from tests.graph.test_open_rows import LAYERS
from volumetric.graph import Graph, GraphBuilder, interpret
from volumetric.graph.batching import _RULES, batch_graph, can_batch
from volumetric.network import Network
from volumetric.run.graph import graph_of

COUNT = 3
CASES = [name for name, case in OP_CASES.items() if case.op in _RULES and all(0 < x.size < 3000 for x in case.inputs)]


def several(values: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Other inputs of the same shapes, by sequence; whole numbers only in another order."""
    rng = np.random.default_rng(seed)
    return [np.stack([rng.permuted(x) for _ in range(COUNT)]) for x in values]


def compare(graph: Graph, given: list[np.ndarray], buffers: dict[str, np.ndarray]) -> None:
    found = interpret(batch_graph(graph, COUNT), given, dict(buffers), np.float64)
    for i in range(COUNT):
        for got, want in zip(found, interpret(graph, [x[i] for x in given], dict(buffers), np.float64), strict=True):
            np.testing.assert_allclose(got[i], want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_operations(name: str) -> None:
    """Whatever inputs differ by sequence, all outputs are right, or it is said that there is no form."""
    case = OP_CASES[name]
    for own in {(0,), (len(case.inputs) - 1,), tuple(range(len(case.inputs)))}:
        check(name, case, own)


def check(name: str, case: OpCase, own: tuple[int, ...]) -> None:
    work, inputs, buffers, given = GraphBuilder(), [], {}, []
    for i, x in enumerate(case.inputs):
        kind = "int32" if np.issubdtype(x.dtype, np.integer) else "float32"
        if i in own:
            inputs.append(work.input(f"x{i}", x.shape, kind))
            given.append(x)
        else:
            inputs.append(work.stored_tensor(f"x{i}", x.shape, kind))
            buffers[f"x{i}"] = x if kind == "int32" else x.astype(np.float64)
    graph = work.finish(work.emit(case.op, inputs, **case.attrs))
    if can_batch(graph):
        compare(graph, several(given, len(name)), buffers)
    else:
        assert own != (0,)
        known = "gemm norm rope gather_rows recurrent cell linear_scan rotate_scan edge_attend"
        assert case.op in known.split()


@pytest.mark.thorough
@pytest.mark.parametrize("network", [*NETWORKS.values(), *LAYERS.values()], ids=[*NETWORKS, *LAYERS])
def test_networks(network: Network) -> None:
    graph = graph_of(network, 4)
    assert can_batch(graph)
    compare(graph, [inputs_of(network, COUNT, 4)], store_of(network).buffers)
