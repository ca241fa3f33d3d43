"""Adapters: products with factors beside those of a network mean what merged weights mean, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric import Coord, Grid, Network, initialise
from volumetric.base.errors import UnsupportedError
from volumetric.graph import interpret
from volumetric.layers import SwiGLU
from volumetric.run.graph.low_rank import overlays_of, with_adapters
from volumetric.run.graph.network_graph import DIALECT, GROUPED, open_graph
from volumetric.run.lower import lower
from volumetric.run.plan import Plan

WEIGHTS = np.array([[0, 0], [1, 0], [0, -2], [0.5, 1], [0, 0], [0, 1], [1, 0]], np.float32)


def gated(limit: float | None = None) -> tuple[Network, Plan]:
    spec = SwiGLU(in_features=6, hidden_features=5, limit=limit, up_offset=1.0 if limit else 0.0, bias=True)
    network = Network(grid=Grid(1), input_shape=(6,), input_dtype="float32", layers={Coord(0): spec})
    return network, lower(network)


@pytest.mark.parametrize("limit", [None, 0.4])
@pytest.mark.parametrize("parts", [("gate", "up", "down"), ("gate",), ("up", "down")])
@pytest.mark.parametrize("dialect", [DIALECT, DIALECT | GROUPED])
def test_each_row_has_its_adapters(limit: float | None, parts: tuple[str, ...], dialect: frozenset[str]) -> None:
    """Two adapters of different ranks; the second is not for all weights. Bounds of a gate come behind them."""
    network, plan = gated(limit)
    rng = np.random.default_rng(5)
    shapes = {"gate": (5, 6), "up": (5, 6), "down": (6, 5)}
    adapters: list[dict[str, tuple[np.ndarray, np.ndarray]]] = [{}, {}]
    for number, (adapter, own) in enumerate(zip(adapters, (parts, parts[:1]), strict=True)):
        for i, part in enumerate(own):
            (n, k), rank = shapes[part], 1 + i + 2 * number
            pair = rng.standard_normal((rank, k)), rng.standard_normal((n, rank))
            adapter[f"0.0.0.0/{part}.weight"] = (pair[0].astype(np.float32), pair[1].astype(np.float32))
    ranks = {key: [len(one[key][0]) if key in one else 0 for one in adapters] for key in adapters[0]}
    base = {key: np.array(store.values()) for key, store in initialise(network, 2).items()}
    factors: dict[str, np.ndarray] = {}
    for overlay in overlays_of(open_graph(plan), ranks):
        for number, adapter in enumerate(adapters):
            factors |= dict(zip(overlay.factor_keys(number), overlay.factors(adapter), strict=True))
    x = rng.standard_normal((len(WEIGHTS), 6)).astype(np.float32)
    graph = open_graph(with_adapters(plan, ranks), dialect)
    [found] = interpret(graph, [x, WEIGHTS], base | factors)
    [without] = interpret(open_graph(plan), [x], dict(base))
    for row, weights in enumerate(WEIGHTS):
        merged = dict(base)
        for weight, adapter in zip(weights, adapters, strict=True):
            merged |= {key: merged[key] + weight * (b @ a) for key, (a, b) in adapter.items()}
        [[wanted]] = interpret(open_graph(plan), [x[row : row + 1]], merged)
        np.testing.assert_allclose(found[row], wanted, rtol=1e-4, atol=1e-5)
        assert (np.abs(found[row] - without[row]).max() > 0.01) == weights.any()
    np.testing.assert_array_equal(found[~WEIGHTS.any(1)], without[~WEIGHTS.any(1)])


def test_adapters_of_a_product_become_one_mixture() -> None:
    _, plan = gated()
    graph = open_graph(with_adapters(plan, {"0.0.0.0/down.weight": [2, 3]}), DIALECT | GROUPED)
    [node] = [node for node in graph.nodes if node.op == "experts"]
    assert (node.attrs["count"], node.attrs["scoring"]) == (2, "given")


def test_a_weight_of_no_product_has_none() -> None:
    _, plan = gated()
    with pytest.raises(UnsupportedError, match="not the weight of a product only"):
        overlays_of(open_graph(plan), {"0.0.0.0/gate.bias": [2]})
