from __future__ import annotations

import json
import pickle
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.dtypes import Scheme
from volumetric.evolution.grids import grid_mutation as structure
from volumetric.evolution.grids.grid_config import CELLS, NAMED, GridConfig, GridMutationConfig
from volumetric.evolution.grids.grid_crossover import crossover, distance
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.grids.grid_mutation import mutate
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.splice import fitness_share
from volumetric.layers import Conv2d, Dense, LayerSpec, Parallel, Reshape, Residual
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link
from volumetric.network.weight_store import WeightStore

WILD = GridMutationConfig(
    activation=0.5, kind=0.3, toggle=0.3, add_layer=0.8, split_layer=0.4, add_link=0.5, drop_link=0.3
)
X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
XOR = np.array([[0], [1], [1], [0]], np.float32)


def mlp(*, width: int = 4) -> Network:
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Dense(in_features=2, out_features=width, activation="tanh"),
        Coord(1): Dense(in_features=width, out_features=width, activation="relu"),
        Coord(2, 1, 1): Dense(in_features=width, out_features=1),
    }
    return Network(grid=Grid(3, 2, 2), layers=layers, input_shape=(2,), input_dtype="float32")


def cnn() -> Network:
    layers: dict[Coord, LayerSpec] = {
        Coord(0): Conv2d(in_channels=1, out_channels=3, kernel_size=3, padding=1, activation="relu"),
        Coord(2): Reshape(shape=(75,)),
        Coord(4): Dense(in_features=75, out_features=2),
    }
    return Network(grid=Grid(6), layers=layers, input_shape=(1, 5, 5), input_dtype="float32")


def fit_xor(genome: GridGenome, rng: np.random.Generator) -> float:
    return 4.0 - float(np.square(genome.forward(X) - XOR).sum())


def first(network: Network, seed: int = 0) -> GridGenome:
    return GridGenome.first(network, initialise(network, seed=seed))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "x"),
    [
        (mlp(), X),
        (cnn(), np.ones((3, 1, 5, 5), np.float32)),
        (tiny_llama(vocabulary=31, width=8, heads=2, kv_heads=1, head_dim=4), np.arange(5, dtype=np.int32)),
    ],
)
def test_any_number_of_wild_mutations_leaves_a_network_that_runs(network: Network, x: np.ndarray) -> None:
    innovations = GridInnovations(next=1000)
    genome = first(network)
    expected = genome.forward(x).shape
    kinds: Counter[str] = Counter()
    for seed in range(25):
        genome = mutate(genome, WILD, innovations, rng(seed))
        assert genome.forward(x).shape == expected
        kinds.update(spec.kind for spec in genome.network.layers.values())
    assert len(kinds) > 4
    assert len(genome.genes) == len(genome.markings) + len(genome.link_markings)


def test_mutation_keeps_numeric_types_and_the_parent() -> None:
    network = mlp()
    params = initialise(network)
    params["1.0.0.0/weight"].morph(Scheme.parse("int4:g32"))
    genome = GridGenome.first(network, params)
    before = {key: store.values().copy() for key, store in genome.params.items()}
    child = mutate(genome, GridMutationConfig(layer_rate=1.0), GridInnovations(next=9), rng(0))
    assert child.params["1.0.0.0/weight"].scheme == Scheme.parse("int4:g32")
    for key, values in before.items():
        np.testing.assert_array_equal(genome.params[key].values(), values)
    assert child != genome


def test_a_split_layer_computes_the_same() -> None:
    genome = first(mlp())
    child = structure.split_layer(genome, rng(1))
    assert child is not None
    assert any(isinstance(spec, Parallel) for spec in child.network.layers.values())
    np.testing.assert_allclose(child.forward(X), genome.forward(X), rtol=1e-6)


LIKE_INPUTS = [kind for kind in CELLS if kind != "slstm"]
"""Cells that make little of small inputs; the norm of an sLSTM makes as much of them as of large ones."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["dense", "lstm", "swiglu", "rms_norm", "multi_head_attention", *LIKE_INPUTS])
def test_an_inserted_layer_begins_close_to_the_identity(kind: str) -> None:
    genome = first(mlp(width=8))
    innovations = GridInnovations(next=9)
    rules = GridMutationConfig(kinds=(kind,))
    children = [structure.add_layer(genome, rules, innovations, rng(seed)) for seed in range(20)]
    grown = [child for child in children if child is not None]
    assert grown
    for child in grown:
        assert len(child.network.layers) == 4
        ratio = np.linalg.norm(child.forward(X) - genome.forward(X)) / np.linalg.norm(genome.forward(X))
        assert ratio < 0.8


@pytest.mark.parametrize("kind", NAMED)
def test_cells_are_made_where_they_are_named(kind: str) -> None:
    assert kind not in GridMutationConfig().kinds
    child = structure.change_kind(first(mlp(width=8)), Coord(1), GridMutationConfig(kinds=(kind,)), rng(0))
    assert child is not None
    assert kind in {spec.kind for spec in child.network.layers.values()}
    assert np.isfinite(child.forward(X)).all()


def test_a_full_grid_takes_no_layer() -> None:
    full = Network(
        grid=Grid(1), layers={Coord(0): Dense(in_features=2, out_features=2)}, input_shape=(2,), input_dtype="float32"
    )
    assert structure.add_layer(first(full), GridMutationConfig(), GridInnovations(next=1), rng(0)) is None


def test_links_join_values_of_one_shape_and_go_again() -> None:
    network = Network(
        grid=Grid(4),
        layers={Coord(z): Dense(in_features=4, out_features=4) for z in range(4)},
        input_shape=(4,),
        input_dtype="float32",
    )
    genome, innovations = first(network), GridInnovations(next=4)
    linked = structure.add_link(genome, innovations, rng(0))
    assert linked is not None
    (link,) = linked.network.links
    assert link.combine == "add"
    assert link.source < link.target
    assert linked.link_markings == (4,)
    bare = structure.drop_link(linked, rng(0))
    assert bare == genome


def test_switching_off_needs_equal_shapes() -> None:
    genome = first(mlp())
    assert structure.toggle(genome, Coord(0)) is None
    off = structure.toggle(genome, Coord(1))
    assert off is not None
    assert structure.toggle(off, Coord(1)) == genome


def test_the_same_change_in_one_generation_has_one_marking() -> None:
    innovations = GridInnovations(next=3)
    genome = first(mlp())
    rules = GridMutationConfig(kinds=("dense",))
    children = [structure.add_layer(genome, rules, innovations, rng(seed)) for seed in range(12)]
    new = {tuple(set(c.markings.values()) - set(genome.markings.values())) for c in children if c is not None}
    places = {tuple(set(c.markings) - set(genome.markings)) for c in children if c is not None}
    assert len(new) == len(places) > 1
    innovations.begin_generation()
    again = [structure.add_layer(genome, rules, innovations, rng(seed)) for seed in range(12)]
    assert min(max(c.markings.values()) for c in again if c is not None) > max(m for (m,) in new)


def test_crossover_takes_structure_from_the_fitter_and_weights_from_both() -> None:
    a, b = first(mlp(), 1), first(mlp(), 2)
    grown = structure.add_layer(a, GridMutationConfig(kinds=("dense",)), GridInnovations(next=3), rng(0))
    assert grown is not None
    origins = set()
    for seed in range(16):
        child = crossover(grown, b, rng(seed))
        assert child.network == grown.network
        assert child.markings == grown.markings
        for key in ("0.0.0.0/weight", "1.0.0.0/weight"):
            values = child.params[key].values()
            from_a = np.array_equal(values, a.params[key].values())
            assert from_a or np.array_equal(values, b.params[key].values())
            origins.add((key, from_a))
    assert len(origins) == 4


def test_a_layer_disabled_in_one_parent_is_mostly_disabled() -> None:
    a, b = first(mlp(), 1), first(mlp(), 2)
    off = structure.toggle(b, Coord(1))
    assert off is not None
    disabled = sum(Coord(1) in crossover(a, off, rng(seed)).network.disabled for seed in range(200))
    assert 120 < disabled < 180


def test_distance_counts_genes_and_weights() -> None:
    rules = GridConfig().species
    a, b = first(mlp(), 1), first(mlp(), 2)
    assert distance(a, a, rules) == 0
    assert 0 < distance(a, b, rules) < rules.weight
    assert distance(a, b, rules) == pytest.approx(distance(b, a, rules))
    grown = structure.add_layer(a, GridMutationConfig(kinds=("dense",)), GridInnovations(next=3), rng(0))
    assert grown is not None
    assert distance(a, grown, rules) == pytest.approx(rules.excess)
    other = structure.change_kind(a, Coord(1), GridMutationConfig(kinds=("lstm",)), rng(0))
    assert other is not None
    assert distance(a, other, rules) == pytest.approx(rules.weight / 3)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["neat", "elites"])
def test_the_same_seed_gives_the_same_run_and_the_population_stays_exact(algorithm: str) -> None:
    config = GridConfig.from_dict({"population": 23, "algorithm": algorithm})
    runs = [GridPopulation(config, mlp(), seed=seed) for seed in (5, 5, 6)]
    for run in runs:
        run.evolve(fit_xor, 4)
        assert len(run.genomes) == 23
    assert runs[0].genomes == runs[1].genomes
    assert runs[0].genomes != runs[2].genomes


@pytest.mark.thorough
def test_worker_processes_give_the_same_run() -> None:
    config = GridConfig(population=12, mutation=WILD)
    here, there = (GridPopulation(config, mlp(), seed=3) for _ in range(2))
    here.evolve(fit_xor, 3)
    with ProcessPoolExecutor(2) as pool:
        there.evolve(fit_xor, 3, executor=pool)
    assert here.genomes == there.genomes


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["neat", "elites"])
def test_xor_is_solved(algorithm: str) -> None:
    config = GridConfig.from_dict({"population": 60, "fitness_threshold": 3.5, "algorithm": algorithm})
    champion = GridPopulation(config, mlp(), seed=2).evolve(fit_xor, 80)
    assert champion.fitness >= 3.5


def test_elites_live_on_and_parents_are_weighed_by_fitness() -> None:
    population = GridPopulation(GridConfig(population=16, algorithm="elites"), mlp(), seed=1)
    population.evolve(fit_xor, 1)
    best = np.argsort(-population.score)[:4]
    elites = [population.genomes[row] for row in best]
    population.ask()
    assert population.genomes[:4] == elites
    assert fitness_share(1.0, 2.0) > 0.5


@pytest.mark.thorough
def test_a_resumed_run_equals_one_that_was_not_interrupted(tmp_path: Path) -> None:
    config = GridConfig(population=14, mutation=WILD)
    whole = GridPopulation(config, mlp(), seed=9)
    whole.evolve(fit_xor, 6)
    part = GridPopulation(config, mlp(), seed=9)
    part.evolve(fit_xor, 3, checkpoint=tmp_path / "run.npz")
    resumed = GridPopulation.load(tmp_path / "run.npz")
    assert resumed.genomes == part.genomes
    resumed.evolve(fit_xor, 3)
    assert resumed.genomes == whole.genomes
    assert resumed.champion is not None
    assert whole.champion is not None
    assert resumed.champion.fitness == whole.champion.fitness
    assert resumed.champion.genome == whole.champion.genome


def test_low_bit_genomes_survive_a_checkpoint(tmp_path: Path) -> None:
    network = mlp()
    params = initialise(network)
    for name, scheme in (("0.0.0.0/weight", "uint4"), ("1.0.0.0/weight", "ternary"), ("2.1.1.0/weight", "bf16")):
        params[name].morph(Scheme.parse(scheme))
    population = GridPopulation(GridConfig(population=5), network, params, seed=1)
    population.evolve(fit_xor, 2, checkpoint=tmp_path / "run.npz")
    assert GridPopulation.load(tmp_path / "run.npz").genomes == population.genomes


@pytest.mark.parametrize("damage", ["cut", "text", "classic", "genomes"])
def test_damaged_checkpoints_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "run.npz"
    population = GridPopulation(GridConfig(population=4), mlp(), seed=1)
    population.save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif damage == "text":
        path.write_text("{}")
    else:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        plain = json.loads(arrays["plain"].tobytes())
        if damage == "classic":
            plain["format"] = "volumetric.evolution"
        else:
            plain["genomes"] = plain["genomes"][:-1]
        arrays["plain"] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
        np.savez(path, **arrays)
    with pytest.raises(CheckpointError, match=r"run\.npz"):
        GridPopulation.load(path)


def test_pickling_keeps_a_genome() -> None:
    genome = first(mlp())
    assert pickle.loads(pickle.dumps(genome)) == genome


def test_shared_weights_mutate_as_one() -> None:
    network = Network(
        grid=Grid(2),
        layers={Coord(z): Dense(in_features=3, out_features=3, bias=False) for z in range(2)},
        links=(Link(kind="shared", source=Coord(0), target=Coord(1)),),
        input_shape=(3,),
        input_dtype="float32",
    )
    child = mutate(first(network), WILD, GridInnovations(next=9), rng(0))
    assert "1.0.0.0/weight" not in child.params


@pytest.mark.parametrize(
    "values", [{"kind": 1.5}, {"kinds": ("dance",)}, {"activations": ("relux",)}, {"weight_power": -1.0}]
)
def test_wrong_settings_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=next(iter(values))):
        GridMutationConfig(**values)  # pyright: ignore[reportArgumentType]  (wrong on purpose)


def test_unknown_keys_are_refused_with_a_suggestion() -> None:
    with pytest.raises(SpecError, match="mutation: unknown key 'add_layr'") as caught:
        GridConfig.from_dict({"mutation": {"add_layr": 0.1}})
    assert "add_layer" in str(caught.value.hint)


def test_residuals_are_never_replaced() -> None:
    network = Network(
        grid=Grid(2),
        layers={Coord(0): Dense(in_features=3, out_features=3), Coord(1): Residual()},
        input_shape=(3,),
        input_dtype="float32",
    )
    assert structure.change_kind(first(network), Coord(1), GridMutationConfig(), rng(0)) is None


def test_markings_must_cover_the_network() -> None:
    genome = first(mlp())
    with pytest.raises(SpecError, match="every layer"):
        GridGenome(network=genome.network, params=genome.params, markings={Coord(0): 0})
    missing = Params({k: WeightStore.from_array(s.values()) for k, s in genome.params.items() if "bias" not in k})
    with pytest.raises(CheckpointError, match="missing"):
        GridGenome.first(genome.network, missing)
