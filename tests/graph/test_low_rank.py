"""Overlays: products with factors beside those of a network mean what merged weights mean."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric import Coord, Grid, Network, initialise
from volumetric.layers import SwiGLU
from volumetric.runtime.graph import interpret
from volumetric.runtime.graph.low_rank import DOWN, UP, factor_shapes, groups_of, with_low_rank
from volumetric.runtime.graph.network import open_graph
from volumetric.runtime.lower import lower


@pytest.mark.parametrize("limit", [None, 0.4])
@pytest.mark.parametrize("parts", [("gate", "up", "down"), ("gate",), ("up", "down")])
def test_a_bounded_gate_has_its_bounds_behind_the_overlay(limit: float | None, parts: tuple[str, ...]) -> None:
    spec = SwiGLU(in_features=6, hidden_features=5, limit=limit, up_offset=1.0 if limit else 0.0, bias=True)
    network = Network(grid=Grid(1), input_shape=(6,), input_dtype="float32", layers={Coord(0): spec})
    plain = open_graph(lower(network))
    ranks = {f"0.0.0.0/{part}.weight": 1 + i for i, part in enumerate(parts)}
    rng = np.random.default_rng(5)
    factors = {k: rng.standard_normal(s).astype(np.float32) for k, s in factor_shapes(plain, ranks).items()}
    base = {key: np.array(store.values()) for key, store in initialise(network, 2).items()}
    merged = dict(base)
    for group in groups_of(plain):
        down = [factors[key + DOWN] for key in group if key + DOWN in factors]
        for key in group:
            if down and key + UP in factors:
                merged[key] = (base[key] + factors[key + UP] @ np.concatenate(down)).astype(np.float32)
    x = rng.standard_normal((7, 6)).astype(np.float32)
    [wanted], [found], [without] = (
        interpret(graph, [x], dict(values))
        for graph, values in (
            (plain, merged),
            (with_low_rank(plain, ranks), base | factors),
            (plain, base),
        )
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(wanted - without).max() > 0.1
