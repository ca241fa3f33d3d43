"""State-space layers and short convolutions tick by tick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import weights
from tests.devices import DEVICES, device
from tests.oracles.clocked import NumpyClocked
from volumetric import Clocked, Coord, Grid, Link, Network
from volumetric.layers import Mamba, Mamba2, ShortConv

LAYERS = (
    Mamba(embed_dim=4, inner_features=3, state_size=2, kernel_size=2),
    ShortConv(embed_dim=4),
    Mamba2(embed_dim=4, num_heads=2, head_dim=2, state_size=2, kernel_size=3),
)
MACHINE = Clocked(
    network=Network(
        grid=Grid(3),
        layers={Coord(z): layer for z, layer in enumerate(LAYERS)},
        links=(Link(kind="activation", source=Coord(2), target=Coord(0), combine="add", delay=2),),
        input_shape=(4,),
        input_dtype="float32",
    )
)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_ticks_are_those_of_the_definition(name: str) -> None:
    rng = np.random.default_rng(1)
    x, resets, params = rng.standard_normal((2, 7, 4)).astype(np.float32), np.zeros((2, 7), np.int64), weights(MACHINE)
    x[1, 1], resets[0, 3], resets[1, 5] = np.nan, 1, 1
    oracle = NumpyClocked(MACHINE, params, 2)
    want = np.stack([oracle.tick({"input": x[:, t]}, resets[:, t])["output"] for t in range(7)], 1)
    assert np.isnan(want[1, 4]).all()
    assert np.isfinite(want[1, 5:]).all()
    stream: Any = device(name).stream(MACHINE, params, batch=2)
    parts = [stream.run(x[:, a:b], resets=resets[:, a:b]) for a, b in ((0, 2), (2, 7))]
    np.testing.assert_allclose(np.concatenate(parts, 1), want, atol=2e-5)
