"""Folding batch norms gives a network without them that computes the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.oracles.network import NumpyNetwork
from volumetric.builders import chain, cnn, fold_batchnorm
from volumetric.dtypes import Scheme
from volumetric.layers import (
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    Dense,
    LayerSpec,
    Parallel,
    Residual,
    Sequential,
)
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Link
from volumetric.network.weight_store import WeightStore


def lived_in(network: Network) -> Params:
    """Weights and statistics as training might leave them."""
    rng = np.random.default_rng(4)
    stores = {}
    for key, spec in network.param_specs().items():
        values = rng.standard_normal(spec.shape) * 0.5 + (spec.init == "ones")
        stores[key] = WeightStore.from_array(np.abs(values).astype(np.float32) + np.float32(0.1))
    return Params(stores)


def output(network: Network, params: Params) -> np.ndarray:
    x = np.random.default_rng(5).standard_normal((3, *network.input_shape))
    return NumpyNetwork.of(network, params).output(x)


def norms(network: Network) -> int:
    def count(spec: LayerSpec) -> int:
        children = spec.children().values()
        return spec.kind.startswith("batch_norm") + sum(map(count, children))

    return sum(map(count, network.layers.values()))


BLOCK = Sequential(
    layers=(
        Conv1d(in_channels=2, out_channels=2, kernel_size=3, padding=1),
        BatchNorm1d(num_features=2, activation="relu"),
        Conv1d(in_channels=2, out_channels=2, kernel_size=1, bias=False),
        BatchNorm1d(num_features=2, affine=False),
        Residual(source="#1"),
        Residual(source="input"),
    )
)
ROW, NORM = Dense(in_features=3, out_features=3), BatchNorm1d(num_features=3)
NETWORKS = {
    "cnn": (cnn((2, 8, 8), 3, channels=(4, 6), norm="batch", pool="max", hidden=(5,), dropout=0.2), 0),
    "groups": (
        chain(
            [
                Conv2d(in_channels=4, out_channels=6, kernel_size=2, groups=2, bias=False),
                BatchNorm2d(num_features=6),
                ConvTranspose2d(in_channels=6, out_channels=4, kernel_size=2, groups=2),
                BatchNorm2d(num_features=4, eps=0.1, activation="tanh"),
            ],
            (4, 3, 3),
        ),
        0,
    ),
    "rows": (chain([Dense(in_features=3, out_features=4), BatchNorm1d(num_features=4)], (3,)), 0),
    "block": (chain([BLOCK, Parallel(branches=(BLOCK, BLOCK), combine="add")], (2, 5)), 0),
    "named": (
        chain(
            [
                Dense(in_features=3, out_features=3),
                BatchNorm1d(num_features=3),
                Dense(in_features=3, out_features=3),
                Residual(source="1.0.0.0"),
            ],
            (3,),
        ),
        0,
    ),
    "read twice": (chain([ROW, NORM, Residual(source="0.0.0.0")], (3,)), 1),
    "before a residual": (chain([ROW, NORM, Residual()], (3,)), 1),
    "twice": (chain([ROW, NORM, NORM], (3,)), 1),
    "curved": (chain([Dense(in_features=3, out_features=3, activation="tanh"), BatchNorm1d(num_features=3)], (3,)), 1),
    "first": (chain([BatchNorm1d(num_features=3), Dense(in_features=3, out_features=2)], (3,)), 1),
    "no channels": (chain([Dense(in_features=3, out_features=3), BatchNorm1d(num_features=2)], (2, 3)), 1),
    "untracked": (
        chain([Dense(in_features=3, out_features=3), BatchNorm1d(num_features=3, track_running_stats=False)], (3,)),
        1,
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_folded_network_computes_the_same(name: str) -> None:
    network, left = NETWORKS[name]
    params = lived_in(network)
    before = output(network, params)
    folded, weights = fold_batchnorm(network, params)
    assert norms(folded) == left
    assert set(weights) == set(folded.param_specs())
    np.testing.assert_allclose(output(folded, weights), before, rtol=2e-6, atol=2e-6 * float(np.abs(before).max()))
    np.testing.assert_array_equal(output(network, params), before)


def test_linked_and_disabled_layers_stay() -> None:
    dense, norm = Dense(in_features=3, out_features=3), BatchNorm1d(num_features=3)
    base = chain([dense, norm, dense], (3,))
    for network in (
        base.with_link(Link(kind="shared", source=Coord(0), target=Coord(2))),
        base.with_link(Link(kind="activation", source=Coord(0), target=Coord(2), combine="add")),
        dataclasses.replace(base, disabled=frozenset({Coord(1)})),
        dataclasses.replace(base, disabled=frozenset({Coord(0)})),
    ):
        params = lived_in(network)
        folded, weights = fold_batchnorm(network, params)
        assert folded == network
        np.testing.assert_array_equal(output(folded, weights), output(network, params))


def test_weights_keep_their_numeric_type() -> None:
    network, _ = NETWORKS["rows"]
    params = lived_in(network)
    params["0.0.0.0/weight"].morph(Scheme.parse("bfloat16"))
    _, weights = fold_batchnorm(network, params)
    assert str(weights["0.0.0.0/weight"].scheme) == "bfloat16"


def test_fresh_statistics_change_nothing_but_eps() -> None:
    network, _ = NETWORKS["rows"]
    params = initialise(network)
    _, weights = fold_batchnorm(network, params)
    ratio = weights["0.0.0.0/weight"].values() / params["0.0.0.0/weight"].values()
    np.testing.assert_allclose(ratio, 1 / np.sqrt(1 + 1e-5), rtol=1e-6)
