"""Columns without the experts that have no weight: the same rows, the same states, in smaller networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from volumetric.base.errors import SpecError
from volumetric.builders import chain, prune_experts
from volumetric.dtypes import Scheme
from volumetric.layers import LSTM, CausalConv1d, Column, Dense, LayerSpec, Scale, Sequential
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import WeightStore

CELLS: tuple[LayerSpec, ...] = (
    LSTM(input_size=6, hidden_size=6),
    CausalConv1d(channels=6, kernel_size=2),
    Scale(factor=0.5),
    Dense(in_features=6, out_features=6, activation="tanh"),
)
COLUMN = Column(embed_dim=6, experts=CELLS, key_dim=5, top_k=2, prune=True)
X = np.random.default_rng(0).standard_normal((2, 7, 6)).astype(np.float32)


def trained(network: Network, seed: int = 0) -> Params:
    """Weights none of which is near zero."""
    rng = np.random.default_rng(seed)
    return Params(
        {
            key: WeightStore.from_array((store.values() + 0.5 * rng.standard_normal(store.shape)).astype(np.float32))
            for key, store in initialise(network).items()
        }
    )


def rows(network: Network, params: Params, on: str = "cpu") -> list[np.ndarray]:
    stream = device(on).stream(network, params, batch=2)
    return [np.asarray(stream.run(X[:, :4])), np.asarray(stream.run(X[:, 4:]))]


def idle(network: Network, params: Params, path: str, spec: Column) -> list[int]:
    own = {key.removeprefix(f"{path}/"): store.values() for key, store in params.items() if key.startswith(f"{path}/")}
    scores = spec.prior(own)
    return np.argsort(-scores)[spec.top_k :].tolist()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("on", ["reference", "cpu"])
def test_what_has_no_weight_is_not_missed(on: str, seed: int) -> None:
    network = chain([COLUMN, Dense(in_features=6, out_features=2)], (6,))
    params = trained(network, seed)
    smaller, fewer = prune_experts(network, params)
    gone = idle(network, params, "0.0.0.0", COLUMN)
    column = smaller.layers[Coord(0)]
    assert isinstance(column, Column)
    assert column.experts == tuple(cell for i, cell in enumerate(CELLS) if i not in gone)
    assert len(fewer) < len(params) or all(not CELLS[i].params() for i in gone)
    for want, got in zip(rows(network, params, on), rows(smaller, fewer, on), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())
    assert {key: store.shape for key, store in fewer.items()} == {k: s.shape for k, s in smaller.param_specs().items()}


def test_columns_inside_of_layers_keep_the_types_of_their_weights() -> None:
    inner = Sequential(layers=(Scale(factor=2.0), replace(COLUMN, refine=0.0)))
    network = chain([replace(COLUMN, experts=(inner, *CELLS[1:]), top_k=3)], (6,))
    params = trained(network, 5)
    for store in params.values():
        store.morph(Scheme.parse("bfloat16"))
    smaller, fewer = prune_experts(network, params)
    column = smaller.layers[Coord(0)]
    assert isinstance(column, Column)
    assert len(column.experts) == 3
    held = column.experts[0]
    assert isinstance(held, Sequential)
    assert isinstance(held.layers[1], Column)
    assert len(held.layers[1].experts) == 2
    assert {str(store.scheme) for store in fewer.values()} == {"bfloat16"}
    for want, got in zip(rows(network, params, "reference"), rows(smaller, fewer, "reference"), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * np.abs(want).max())


def test_one_expert_with_a_weight_keeps_another_beside_it() -> None:
    network = chain([replace(COLUMN, top_k=1)], (6,))
    params = trained(network, 2)
    smaller, fewer = prune_experts(network, params)
    column = smaller.layers[Coord(0)]
    assert isinstance(column, Column)
    assert (len(column.experts), column.top_k) == (2, 1)
    np.testing.assert_allclose(rows(smaller, fewer)[0], rows(network, params)[0], atol=1e-5)


def test_experts_go_by_their_numbers() -> None:
    network = chain([replace(COLUMN, prune=False, top_k=None), COLUMN], (6,))
    params = trained(network)
    smaller, fewer = prune_experts(network, params, {"0.0.0.0": [3, 0, 3]})
    first, second = smaller.layers.values()
    assert isinstance(first, Column)
    assert first.experts == CELLS[1:3]
    assert second == COLUMN
    for name in ("prior.keys", "mix.bias", "refine.keys"):
        np.testing.assert_array_equal(fewer[f"0.0.0.0/{name}"].values(), params[f"0.0.0.0/{name}"].values()[1:3])
    np.testing.assert_array_equal(fewer["0.0.0.0/0/weight"].values(), params["0.0.0.0/1/weight"].values())
    without = dict(params)
    alone = prune_experts(network, without, {"0.0.0.0": [3, 0], "1.0.0.0": [0]})[0].layers[Coord(1)]
    assert isinstance(alone, Column)
    assert (len(alone.experts), alone.top_k) == (3, 2)
    assert without == dict(params)


@pytest.mark.parametrize(
    ("experts", "message"),
    [
        ({"0.0.0.0": [4]}, "has no expert 4"),
        ({"0.0.0.0": [0, 1, 2]}, "would keep 1 of 4 experts"),
        ({"2.0.0.0": [0]}, "no column at '2.0.0.0'"),
        (None, "no experts to remove"),
    ],
)
def test_what_cannot_go_is_told(experts: Any, message: str) -> None:
    network = chain([replace(COLUMN, prune=False), Dense(in_features=6, out_features=2)], (6,))
    with pytest.raises(SpecError, match=message):
        prune_experts(network, initialise(network), experts)


@pytest.mark.thorough
def test_shared_columns_stay_as_they_are() -> None:
    link = Link(kind="shared", source=Coord(0), target=Coord(1))
    network = Network(
        grid=Grid(3),
        layers={Coord(0): COLUMN, Coord(1): COLUMN, Coord(2): COLUMN},
        links=(link,),
        input_shape=(6,),
        input_dtype="float32",
    )
    params = trained(network)
    smaller, fewer = prune_experts(network, params)
    assert [len(spec.experts) for spec in smaller.layers.values() if isinstance(spec, Column)] == [4, 4, 2]
    np.testing.assert_allclose(rows(smaller, fewer)[1], rows(network, params)[1], atol=1e-4)
    with pytest.raises(SpecError, match="shares weights"):
        prune_experts(network, params, {"1.0.0.0": [0]})
