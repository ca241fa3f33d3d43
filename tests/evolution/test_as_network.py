"""Genomes become networks with the same outputs, and dense chains become genomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evolution.genomes import genome
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.evolution import EvolutionConfig, Genome, GenomeConfig, MutationConfig, Population
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.problems import Table
from volumetric.layers import Dense, RMSNorm
from volumetric.loaders.loaded_model import open_model
from volumetric.loaders.native_checkpoint import save_native
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import Params
from volumetric.run.lower import lower

pytestmark = pytest.mark.thorough

LAYERED = ("steep_sigmoid", "sigmoid", "tanh", "relu", "linear", "leaky_relu", "silu", "gelu")
WILD = MutationConfig(
    add_node=0.3, add_connection=0.6, delete_node=0.05, enabled_rate=0.1, activation_rate=0.5, activations=LAYERED,
    aggregation_rate=0.3, aggregations=("sum", "mean"), weight_min=-2, weight_max=2, bias_min=-2, bias_max=2,
)  # fmt: skip


def forward(network: Network, params: Params, x: np.ndarray) -> np.ndarray:
    executable = ReferenceDevice().compile(lower(network), params)
    return executable.forward(executable.new_state(), x.astype(np.float32), last_only=False)


def evolved(seed: int = 5) -> list[Genome]:
    shape = GenomeConfig(inputs=3, outputs=2)
    population = Population(EvolutionConfig(population=40, mutation=WILD, genome=shape), seed=seed)
    rng = np.random.default_rng(0)
    problem = Table.of(rng.normal(size=(7, 3)), rng.normal(size=(7, 2)), goal=1e9)
    population.evolve(problem, generations=15)
    return population.genomes


def test_evolved_genomes_keep_their_outputs(rng: np.random.Generator) -> None:
    members = evolved()
    assert max(member.hidden for member in members) > 4
    x = rng.normal(size=(20, 3))
    for member in members:
        network, params = member.to_network()
        expected = member.activate(x)
        np.testing.assert_allclose(forward(network, params, x), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_networks_of_genomes_are_genomes_again(rng: np.random.Generator) -> None:
    x = rng.normal(size=(20, 3))
    for member in evolved():
        network, params = member.to_network()
        again = Genome.from_network(network, params)
        assert again.hidden <= member.hidden
        expected = member.activate(x)
        np.testing.assert_allclose(again.activate(x), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_a_genome_in_layers_is_a_chain_of_dense_layers() -> None:
    member = genome([(0, 0, 3, 1.0, True), (1, 1, 3, -2.0, True), (2, 3, 2, 0.5, True)], hidden=[3])
    network, params = member.to_network()
    assert [(spec.kind, network.shapes[coord][-1]) for coord, spec in network.layers.items()] == [
        ("dense", 1), ("dense", 1),
    ]  # fmt: skip
    np.testing.assert_allclose(params["0.0.0.0/weight"].values(), [[4.9, -9.8]], rtol=1e-6)


def test_an_output_that_feeds_another_one_and_a_node_without_sources() -> None:
    member = genome([(0, 0, 2, 1.0, True), (1, 2, 3, 1.0, True), (2, 4, 2, 1.0, True)], hidden=[4], outputs=2)
    x = np.random.default_rng(1).normal(size=(6, 2))
    np.testing.assert_allclose(forward(*member.to_network(), x), member.activate(x), rtol=1e-6)


def test_what_no_layer_computes_is_named() -> None:
    member = genome([(0, 0, 2, 1.0, True)])
    nodes = member.nodes.copy()
    nodes["activation"], nodes["aggregation"] = ACTIVATIONS.index("sin"), AGGREGATIONS.index("max")
    with pytest.raises(UnsupportedError, match="max, sin"):
        replace(member, nodes=nodes).to_network()
    with pytest.raises(UnsupportedError, match="recurrent"):
        genome([(0, 0, 2, 1.0, True)], recurrent=True).to_network()


def test_nodes_that_nothing_reads_are_left_out() -> None:
    member = genome([(0, 0, 2, 1.0, True), (1, 0, 3, 1.0, True)], hidden=[3])
    nodes = member.nodes.copy()
    nodes["activation"][1] = ACTIVATIONS.index("sin")
    network, _ = replace(member, nodes=nodes).to_network()
    assert len(network.layers) == 1


def chain(*activations: str) -> Network:
    widths = [4, 6, 5, 3]
    layers = {
        Coord(z): Dense(in_features=widths[z], out_features=widths[z + 1], activation=a, bias=z != 1)  # pyright: ignore[reportArgumentType]
        for z, a in enumerate(activations)
    }
    return Network(grid=Grid(3), layers=layers, input_shape=(4,), input_dtype="float32")


def test_a_chain_of_dense_layers_becomes_a_genome_and_back(rng: np.random.Generator) -> None:
    network = chain("relu", "silu", "tanh")
    params = initialise(network, seed=3)
    member = Genome.from_network(network, params)
    assert (member.hidden, len(member.connections)) == (11, 4 * 6 + 6 * 5 + 5 * 3)
    x = rng.normal(size=(9, 4))
    expected = forward(network, params, x)
    np.testing.assert_allclose(member.activate(x), expected, rtol=1e-5, atol=1e-6)
    again, weights = member.to_network()
    np.testing.assert_allclose(forward(again, weights, x), expected, rtol=1e-5, atol=1e-6)
    assert [type(spec) for spec in again.layers.values()] == [Dense] * 3


def test_what_is_no_chain_is_refused() -> None:
    network = chain("relu", "relu", "relu2")
    with pytest.raises(UnsupportedError, match="relu2"):
        Genome.from_network(network, initialise(network))
    square = Dense(in_features=4, out_features=4)
    layers = {Coord(0): square, Coord(1): RMSNorm(num_features=4), Coord(2): square}
    normed = Network(grid=Grid(3), layers=layers, input_shape=(4,), input_dtype="float32")
    with pytest.raises(UnsupportedError, match=r"rms_norm at 1\.0\.0\.0"):
        Genome.from_network(normed, initialise(normed))
    linked = normed.with_layer(Coord(1), None).with_link(
        Link(kind="activation", source=Coord(0), target=Coord(2), combine="add")
    )
    with pytest.raises(UnsupportedError, match="links"):
        Genome.from_network(linked, initialise(linked))


def test_a_population_begins_from_a_genome() -> None:
    network = chain("relu", "silu", "tanh")
    member = Genome.from_network(network, initialise(network, seed=3))
    config = EvolutionConfig(population=10, genome=GenomeConfig(inputs=4, outputs=3))
    population = Population(config, seed=1, first=member)
    assert population.genomes[0] == member
    assert population.genomes[1] != member
    assert population.genomes[1].hidden >= member.hidden
    rng = np.random.default_rng(0)
    population.evolve(Table.of(rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), goal=1e9), generations=4)
    for child in population.genomes:
        assert len(set(child.connections["innovation"].tolist())) == len(child.connections)
    with pytest.raises(SpecError, match="first genome"):
        Population(EvolutionConfig(genome=GenomeConfig(inputs=3)), first=member)
    assert Population(EvolutionConfig(population=3), first=member).genomes[0] == member


def test_a_champion_is_saved_as_a_checkpoint_that_runs(tmp_path: Path, rng: np.random.Generator) -> None:
    member = evolved()[0]
    save_native(tmp_path / "champion", *member.to_network())
    model = open_model(str(tmp_path / "champion"))
    x = rng.normal(size=(4, 3))
    np.testing.assert_allclose(forward(model.network, model.params, x), member.activate(x), rtol=1e-5, atol=1e-6)
