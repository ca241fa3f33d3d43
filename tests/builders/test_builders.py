"""Builders make networks that run, learn and say what they are made of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.layers.graphed import graphed
from tests.networks import tiny_llama
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.builders import around, as_layer, chain, cnn, graft, random_grid, sequential, transformer
from volumetric.builders.random_grid import MAKERS
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import Dense, Parallel, Residual, RMSNorm, Sequential, Softmax
from volumetric.network import Network, Params, initialise
from volumetric.network.blueprint import blueprint
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.network_json import network_from_json
from volumetric.run import lower


def run(network: Network, params: Params, x: np.ndarray) -> np.ndarray:
    executable = ReferenceDevice().compile(lower(network), params)
    return executable.forward(executable.new_state(), x, last_only=False)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_sequential_is_dense_layers_of_these_widths() -> None:
    network = sequential(3, 2, hidden=(5, 4), activation="tanh", output_activation="sigmoid")
    specs = list(network.layers.values())
    assert [(s.in_features, s.out_features, s.activation) for s in specs if isinstance(s, Dense)] == [
        (3, 5, "tanh"),
        (5, 4, "tanh"),
        (4, 2, "sigmoid"),
    ]
    assert run(network, initialise(network), normal(7, 3)).shape == (7, 2)
    assert len(sequential(3, 2, hidden=()).layers) == 1


@pytest.mark.parametrize("shape", [(2, 9), (1, 8, 6), (2, 4, 3, 5)])
def test_cnn_runs_on_one_to_three_axes(shape: tuple[int, ...]) -> None:
    network = cnn(shape, 3, channels=(4, 5), stride=2, hidden=(6,))
    assert run(network, initialise(network), normal(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(2, 9), (1, 8, 6), (2, 4, 5, 6)])
def test_cnn_with_norms_pools_and_dropout(shape: tuple[int, ...]) -> None:
    axes = len(shape) - 1
    sizes: Any = {"channels": (4, 6), "hidden": (5,), "dropout": 0.1}
    batch = cnn(shape, 3, norm="batch", pool="max", **sizes)
    group = cnn(shape, 3, norm="group", pool="avg", global_pool=True, **sizes)
    for network, norm, pool in ((batch, f"batch_norm{axes}d", "max"), (group, "group_norm", "avg")):
        kinds = [spec.kind for spec in network.layers.values()]
        assert kinds.count(norm) == kinds.count(f"{pool}_pool{axes}d") == kinds.count("dropout") == 2
        assert (f"adaptive_avg_pool{axes}d" in kinds) == (network is group)
        assert run(network, initialise(network), normal(2, *shape)).shape == (2, 3)
    wrong: Any = "bach"
    with pytest.raises(SpecError, match="cnn: unknown norm 'bach'"):
        cnn(shape, 3, norm=wrong)
    with pytest.raises(SpecError, match="cnn: unknown pool 'bach'"):
        cnn(shape, 3, pool=wrong)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4, 5)])
def test_cnn_refuses_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="one to three sizes"):
        cnn(shape, 3)


def test_transformer_computes_what_the_hand_written_one_does() -> None:
    built, ids = transformer(97, width=32, blocks=2, heads=4, kv_heads=2, hidden=91), np.arange(9, dtype=np.int32)
    params = initialise(tiny_llama())
    np.testing.assert_array_equal(run(built, params, ids), run(tiny_llama(), params, ids))
    untied = transformer(11, width=16, blocks=1, heads=2, tied=False)
    assert "2.0.0.1/weight" in untied.param_specs()
    assert run(untied, initialise(untied), np.arange(5, dtype=np.int32)).shape == (5, 11)


def test_random_grids_repeat_by_their_seed_and_every_kind_runs() -> None:
    assert random_grid(6, seed=3) == random_grid(6, seed=3)
    assert random_grid(6, seed=3) != random_grid(6, seed=4)
    for kind in MAKERS:
        network = random_grid(6, depth=1, rows=1, cols=2, kinds=(kind,))
        assert {spec.kind for spec in network.layers.values()} == {kind}
        assert run(network, initialise(network), normal(4, 6)).shape == (4, 6)
    with pytest.raises(SpecError, match="cannot draw"):
        random_grid(6, kinds=("dense", "desne"))


def test_a_network_as_one_layer_computes_the_same() -> None:
    layers = [
        RMSNorm(num_features=4),
        Dense(in_features=4, out_features=4, activation="tanh"),
        Residual(source="0.0.0.0"),
        Softmax(),
        Residual(),
        Dense(in_features=4, out_features=3),
    ]
    network = chain(layers, (4,))
    network = Network(
        grid=network.grid,
        layers=network.layers,
        disabled=frozenset({Coord(3)}),
        input_shape=(4,),
        input_dtype="float32",
    )
    params = initialise(network)
    layer, names = as_layer(network)
    assert len(layer.layers) == 5
    y, _ = graphed(layer).forward({name: params[key].values() for key, name in names.items()}, normal(5, 4))
    np.testing.assert_array_equal(y, run(network, params, normal(5, 4)))


@pytest.mark.parametrize("combine", ["concat", "add", "avg", "filter", "grid_scatter"])
def test_grafted_networks_keep_their_functions(combine: str) -> None:
    single = chain([Dense(in_features=4, out_features=2)], (4,))
    networks = [sequential(4, 2, hidden=(3,)), single, sequential(4, 2, hidden=(5, 6))]
    parts = [(network, initialise(network, seed)) for seed, network in enumerate(networks)]
    x = normal(6, 4)
    outputs = [run(network, params, x) for network, params in parts]
    network, params = graft(parts, combine)  # pyright: ignore[reportArgumentType]  (parametrised)
    joined = {
        "concat": np.concatenate(outputs, -1),
        "add": sum(outputs),
        "avg": sum(outputs) / 3,
        "filter": sum(outputs) / 3,
        "grid_scatter": np.concatenate(outputs, -1),
    }[combine]
    np.testing.assert_allclose(run(network, params, x), joined, atol=1e-6)
    assert network_from_json(network.to_json()) == network


def around_dense() -> Network:
    return around(chain([Dense(in_features=4, out_features=4)], (4,)))


def test_grafting_refuses_what_does_not_go_together() -> None:
    a, b = sequential(4, 2), sequential(3, 2)
    with pytest.raises(ShapeError, match="network 1 reads"):
        graft([(a, initialise(a)), (b, initialise(b))])
    c = sequential(4, 3)
    with pytest.raises(ShapeError, match="cannot add"):
        graft([(a, initialise(a)), (c, initialise(c))], "add")
    with pytest.raises(SpecError, match="networks is empty"):
        graft([])
    tied = transformer(9, width=8, blocks=1, heads=2)
    with pytest.raises(UnsupportedError, match="links"):
        as_layer(tied)


def test_a_path_around_a_network_adds_its_input() -> None:
    network = around_dense()
    inner = chain([Dense(in_features=4, out_features=4)], (4,))
    params = initialise(network)
    assert params.keys() == inner.param_specs().keys()
    np.testing.assert_allclose(run(network, params, normal(3, 4)), run(inner, params, normal(3, 4)) + normal(3, 4))
    with pytest.raises(ShapeError):
        around(sequential(4, 2))


def test_the_blueprint_tells_shapes_parameters_and_branches() -> None:
    inside = Sequential(layers=(Dense(in_features=4, out_features=6), Dense(in_features=6, out_features=2)))
    layer = Parallel(branches=(inside, Dense(in_features=4, out_features=3, bias=False)))
    network = chain([RMSNorm(num_features=4), layer], (4,))
    facts = blueprint(network, initialise(network))
    assert facts.parameters == sum(store.values().size for store in initialise(network).values())
    told = [(depth, fact.where, fact.kind, fact.output[1:], fact.parameters) for depth, fact in facts.walk()]
    assert told == [
        (0, "0.0.0.0", "rms_norm", (4,), 4),
        (0, "1.0.0.0", "parallel", (5,), 4 * 6 + 6 + 6 * 2 + 2 + 12),
        (1, "1.0.0.0/0", "sequential", (2,), 44),
        (2, "1.0.0.0/0/0", "dense", (6,), 30),
        (2, "1.0.0.0/0/1", "dense", (2,), 14),
        (1, "1.0.0.0/1", "dense", (3,), 12),
    ]
    data = json.loads(json.dumps(facts.describe()))
    assert data["total_layers"] == 6
    assert data["layers"][1]["children"][1]["params"] == [
        {"key": "1.0.0.0/1/weight", "shape": [3, 4], "elements": 12, "dtype": "float32"}
    ]
    every = [p.key for _, fact in facts.walk() for p in fact.params]
    assert every == list(network.param_specs())


def test_the_blueprint_counts_shared_weights_once() -> None:
    network = transformer(11, width=8, blocks=1, heads=2)
    facts = blueprint(network)
    assert facts.parameters == sum(int(np.prod(spec.shape)) for spec in network.param_specs().values())
    (head,) = [p for _, fact in facts.walk() for p in fact.params if p.key == "2.0.0.1/weight"]
    assert head.shared_from == "0.0.0.0/weight"
    gated = Network(
        grid=Grid(2),
        layers={Coord(0): Dense(in_features=4, out_features=4), Coord(1): Dense(in_features=4, out_features=4)},
        links=(Link(kind="activation", source=Coord(0), target=Coord(1)),),
        disabled=frozenset({Coord(0)}),
        input_shape=(4,),
        input_dtype="float32",
    )
    assert blueprint(gated).layers[0].disabled
