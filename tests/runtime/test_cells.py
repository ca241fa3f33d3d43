"""Cells in networks that devices run row by row: in any cut of a sequence, from saved states, as the reference does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.devices import FAST, device
from volumetric.layers import (
    MLSTM,
    SLSTM,
    AGaLiTe,
    Axon,
    AxonLinear,
    CausalConv1d,
    Dense,
    LayerSpec,
    Sequential,
    XLAttention,
)
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower

WIDTH = 6
CELLS: tuple[LayerSpec, ...] = (
    CausalConv1d(channels=WIDTH),
    CausalConv1d(channels=WIDTH, kernel_size=3, mixing=True),
    SLSTM(embed_dim=WIDTH, num_heads=2),
    MLSTM(embed_dim=WIDTH, num_heads=2, chunk_size=4),
    AGaLiTe(embed_dim=WIDTH, num_heads=2, eta=2, r=3),
    Axon(in_features=WIDTH, out_features=WIDTH, traces=True, activation="silu"),
    AxonLinear(in_features=WIDTH, out_features=WIDTH, mix="none"),
    XLAttention(embed_dim=WIDTH, num_heads=2, memory=5),
)


@pytest.mark.thorough
@pytest.mark.parametrize("where", FAST)
@pytest.mark.parametrize("cell", CELLS, ids=lambda of: of.kind)
def test_cells_go_on_from_call_to_call(cell: LayerSpec, where: str) -> None:
    spec = Sequential(layers=(cell, Dense(in_features=WIDTH, out_features=3)))
    network = Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=(WIDTH,), input_dtype="float32")
    params, plan = initialise(network, seed=1), lower(network)
    x = np.random.default_rng(0).standard_normal((9, WIDTH)).astype(np.float32)
    options = RunOptions(compute="float32", kv_dtype="float32")
    reference = device("reference").compile(plan, params, RunOptions())
    want = reference.forward(reference.new_state(), x, last_only=False)
    executable = device(where).compile(plan, params, options)
    state, parts = executable.new_state(), []
    for first, end in pairwise((0, 5, 6, 9)):
        parts.append(executable.forward(state, x[first:end], last_only=False))
        state = executable.restore(state.save())
    np.testing.assert_allclose(np.concatenate(parts), want, rtol=0, atol=1e-5 * np.abs(want).max())
    executable.close()
