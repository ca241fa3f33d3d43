"""Programs that evolve: every child is a program that runs, parameters follow by name, and names are innovations."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed_to

from tests.examples.programs import BELIEF, CARRIED, EDGES, EYE, KNOWN, TIMED, WHOLE, program
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.cli import main
from volumetric.evolution import compare, extract_dna, splice
from volumetric.evolution.evolution_config import SpeciesConfig
from volumetric.evolution.grids.grid_config import PROGRAM_CHANCES, GridConfig, GridMutationConfig
from volumetric.evolution.grids.grid_crossover import crossover, distance
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.grids.grid_mutation import change_kind, mutate, split_layer
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.programs.clock_genes import changed_clock, new_clock
from volumetric.evolution.programs.edge_genes import add_edge
from volumetric.evolution.programs.program_change import Mark, MutatedProgram, parts_of
from volumetric.evolution.programs.program_mutation import CHANGES, Changing, apply_change
from volumetric.evolution.programs.region_genes import add_region
from volumetric.layers.clock import Clock
from volumetric.network import check_params, initialise
from volumetric.network.grid import Coord
from volumetric.network.weight_store import Params, WeightStore
from volumetric.program.describe import problems
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.recipes import recipe_params
from volumetric.program.layer.region import Region
from volumetric.program.layer.region_learning import Learning

AT = Coord(0)
SPECS = {"timed": TIMED, "carried": CARRIED, "whole": WHOLE, "known": KNOWN}
WINDOW = program(
    {
        "eye": Region(((0, 3), (0, 2)), family="observation"),
        "belief": Region(((1, 3), (2, 4)), period=2),
        "goal": Region(((0, 3), (4, 6)), family="goal"),
    },
    (
        Edge("eye", "belief", lag=1, fill="lerp", order=2),
        Edge("belief", "goal", rule="mamba"),
        Edge("goal", "belief", lag=-1),
    ),
    {"seen": In("eye", 3), "guess": Out("goal", 2)},
    (6,),
    3,
)
PARITY = program(None, (*EDGES, Edge("eye", "belief", write="gate")), {"seen": In("eye", 3), "guess": Out("belief", 2)},
                 parity=True, share="rule")  # fmt: skip
ALL = {**SPECS, "window": WINDOW, "parity": PARITY}
X = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
RULES = SpeciesConfig()
EXAMPLES = Path(__file__).parents[2] / "examples"


def first(name: str = "timed", seed: int = 1) -> GridGenome:
    network = chain([ALL[name]], (3,))
    return GridGenome.first(network, initialise(network, seed))


def spec_of(genome: GridGenome) -> Program:
    spec = genome.network.layers[AT]
    assert isinstance(spec, Program)
    return spec


def program_of(genome: GridGenome) -> Declared:
    return spec_of(genome).program


def check(genome: GridGenome) -> None:
    """It is a whole genome of a program that can be run, and JSON loses nothing of it."""
    program = program_of(genome)
    assert not problems(program)
    assert Declared.from_json(program.to_json()) == program
    check_params(genome.network, genome.params)
    assert all(np.isfinite(store.values()).all() for store in genome.params.values())


@pytest.mark.thorough
@settings(max_examples=8, deadline=None)
@given(st.sampled_from(list(ALL)), st.integers(0, 2**32), st.lists(st.sampled_from(list(CHANGES)), max_size=8))
def test_every_child_is_a_program_that_runs(name: str, seed: int, names: list[str]) -> None:
    """Of any changes, and of two such; it has the ports of its parents."""
    rng, innovations = np.random.default_rng(seed), GridInnovations(next=10)
    parents = [first(name), first(name, 2)]
    for i, change in enumerate(names):
        innovations.begin_generation()
        mutant = apply_change(parents[i % 2], AT, CHANGES[change], innovations.mark, rng)
        parents[i % 2] = mutant or parents[i % 2]
        check(parents[i % 2])
    fitter, other = parents
    child = crossover(fitter, other, rng)
    check(child)
    assert program_of(child).ports == program_of(first(name)).ports
    assert program_of(child).canvas.regions.keys() == program_of(fitter).canvas.regions.keys()
    assert child.predict(X).shape == first(name).predict(X).shape
    assert distance(fitter, other, RULES) == pytest.approx(distance(other, fitter, RULES))
    assert distance(child, fitter, RULES) >= 0
    assert distance(child, child, RULES) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPECS)
def test_new_regions_and_edges_leave_what_a_program_computes(name: str) -> None:
    """To the rounding of float32, wherever a change says that it begins closed; copies have their model's weights."""
    genome, innovations = first(name), GridInnovations(next=10)
    before, closed = genome.predict(X), 0
    for seed in range(3):
        for change in (add_region, add_edge):
            mutated: list[MutatedProgram | None] = []

            def remembered(
                program: Declared,
                mark: Mark,
                rng: np.random.Generator,
                change: Changing = change,
                mutated: list[MutatedProgram | None] = mutated,
            ) -> MutatedProgram | None:
                mutated.append(change(program, mark, rng))
                return mutated[-1]

            innovations.begin_generation()
            child = apply_change(genome, AT, remembered, innovations.mark, np.random.default_rng(seed))
            if child is None or mutated[0] is None:
                continue
            for new, old in mutated[0].copies.items():
                names = parts_of(spec_of(child)).get(new, ())
                for param in names:
                    source = genome.params[f"{AT}/{old}{param.removeprefix(new)}"]
                    np.testing.assert_array_equal(child.params[f"{AT}/{param}"].values(), source.values())
            if mutated[0].closed:
                closed += 1
                np.testing.assert_allclose(child.predict(X), before, rtol=0, atol=1e-6)
    assert closed >= 3


@pytest.mark.thorough
def test_each_change_happens() -> None:
    genome, innovations = first("whole"), GridInnovations(next=10)
    for name, change in CHANGES.items():
        rngs = (np.random.default_rng(seed) for seed in range(20))
        children = [g for rng in rngs if (g := apply_change(genome, AT, change, innovations.mark, rng)) is not None]
        assert any(program_of(one) != program_of(genome) for one in children), name
        counts = {(len(program_of(g).canvas.regions), len(program_of(g).edges)) for g in children}
        before = len(program_of(genome).canvas.regions), len(program_of(genome).edges)
        if name in ("add_region", "add_edge"):
            assert all(regions >= before[0] and edges > before[1] for regions, edges in counts)
        if name in ("drop_region", "drop_edge"):
            assert all(regions <= before[0] and edges < before[1] for regions, edges in counts)
    assert tuple(CHANGES) == PROGRAM_CHANCES


def test_the_same_change_in_one_generation_has_one_name() -> None:
    innovations = GridInnovations(next=10)
    one, other = (apply_change(first(), AT, add_edge, innovations.mark, np.random.default_rng(3)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert program_of(one).edges[-1] == program_of(other).edges[-1]
    again = apply_change(one, AT, add_edge, innovations.mark, np.random.default_rng(3))
    assert again is None  # a program has it once
    innovations.begin_generation()
    later = apply_change(first(), AT, add_edge, innovations.mark, np.random.default_rng(3))
    assert later is not None
    assert program_of(later).edges[-1].name != program_of(one).edges[-1].name


def test_children_have_edges_and_regions_of_both_parents() -> None:
    """By name, with their parameters: each matching part is wholly one parent's."""
    a = first("whole")
    edges = tuple(changed_to(edge, weight=2.0) for edge in program_of(a).edges)
    regions = {
        name: changed_to(region, clock="every(2)") if region.clock is None else region
        for name, region in program_of(a).canvas.regions.items()
    }
    canvas = changed_to(program_of(a).canvas, regions=regions)
    other = replace(spec_of(a), program=changed_to(program_of(a), edges=edges, canvas=canvas))
    network = chain([other], (3,))
    b = GridGenome.first(network, initialise(network, 7))
    child = crossover(a, b, np.random.default_rng(0))
    check(child)
    weights = {edge.weight for edge in program_of(child).edges}
    assert weights == {1.0, 2.0}
    kinds = set()
    for part, names in parts_of(spec_of(child)).items():
        from_a = all((child.params[f"{AT}/{n}"].values() == a.params[f"{AT}/{n}"].values()).all() for n in names)
        from_b = all((child.params[f"{AT}/{n}"].values() == b.params[f"{AT}/{n}"].values()).all() for n in names)
        assert from_a or from_b, part
        kinds.add(from_a)
    assert kinds == {True, False}


def test_meters_that_both_parents_have_are_there_once() -> None:
    """And those of one alone too, while edges still come from both."""
    a = first("carried")
    edges = tuple(changed_to(edge, weight=2.0) for edge in program_of(a).edges)
    meters = (*program_of(a).meters, Meter("thing"))
    other = replace(spec_of(a), program=changed_to(program_of(a), edges=edges, meters=meters))
    network = chain([other], (3,))
    child = crossover(a, GridGenome.first(network, initialise(network, 7)), np.random.default_rng(1))
    check(child)
    assert {edge.weight for edge in program_of(child).edges} == {1.0, 2.0}
    assert program_of(child).meters == meters


def test_parameters_of_losses_alone_are_no_distance() -> None:
    learns = Learning("ssl_prediction", {"next_step": 1.0, "masked_prediction": 1.0})
    regions = {"eye": changed_to(EYE, learning=learns), "belief": BELIEF}
    network = chain([program(regions)], (2,))
    a = GridGenome.first(network, initialise(network, 1))
    b = GridGenome.first(network, initialise(network, 2))
    aside = {f"{AT}/{param.name}" for param in recipe_params(spec_of(a).facts)}
    assert aside
    apart = replace(a, params=Params({k: b.params[k] if k in aside else s for k, s in a.params.items()}))
    assert any((apart.params[k].values() != a.params[k].values()).any() for k in aside)
    assert distance(a, apart, RULES) == 0
    assert distance(a, b, RULES) > 0


def test_distance_tells_structure_and_weights_apart() -> None:
    a = first("whole")
    near = replace(a, params=Params({k: WeightStore.from_array(s.values() * 1.01) for k, s in a.params.items()}))
    grown = apply_change(a, AT, add_edge, GridInnovations(next=10).mark, np.random.default_rng(0))
    assert grown is not None
    assert 0 < distance(a, near, RULES) < distance(a, grown, RULES) < distance(grown, first("whole", 9), RULES)


def test_dna_is_read_region_by_region_and_edge_by_edge() -> None:
    a = first("whole")
    grown = apply_change(a, AT, add_region, GridInnovations(next=10).mark, np.random.default_rng(0))
    assert grown is not None
    comparison = compare(extract_dna(a.network, a.params), extract_dna(grown.network, grown.params))
    assert comparison.overlaps
    assert all(value == pytest.approx(1) for value in comparison.overlaps.values())
    assert not comparison.only_a
    assert comparison.only_b
    assert all("/edges.e" in path or "/regions.r" in path for path in comparison.only_b)
    edge = program_of(a).edges[0]
    others = (changed_to(edge, rule="sigmoid"), *program_of(a).edges[1:])
    network = chain([replace(spec_of(a), program=changed_to(program_of(a), edges=others))], (3,))
    apart = compare(extract_dna(a.network, a.params), extract_dna(network, a.params)).overlaps
    assert {path for path, value in apart.items() if value < 0.9} == {f"{AT}/edges.{edge.name}"}
    report = splice((a.network, a.params), (network, a.params)).report
    assert [part.path for part in report if part.reason] == [f"{AT}/edges.{edge.name}"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_clocks_stay_clocks(seed: int, inner: bool) -> None:
    rng = np.random.default_rng(seed)
    clock: Clock | None = new_clock(["err.prediction"], rng)
    for _ in range(12):
        if clock is None:
            return
        assert Clock.parse(str(clock)) == clock
        assert inner or "inner" not in str(clock)
        clock = changed_clock(clock, ["err.prediction"], rng, inner=inner)


def test_a_program_stays_a_program() -> None:
    """Other kinds of layers do not take its place, and it is not halved."""
    rules = GridMutationConfig()
    assert change_kind(first(), AT, rules, np.random.default_rng(0)) is None
    assert split_layer(first(), np.random.default_rng(0)) is None
    for name in PROGRAM_CHANCES:
        with pytest.raises(SpecError, match=name):
            replace(rules, **{name: 1.5})
    none: dict[str, Any] = dict.fromkeys((*PROGRAM_CHANCES, "layer_rate", "toggle"), 0.0)
    still = GridMutationConfig(**none)
    assert mutate(first(), still, GridInnovations(next=10), np.random.default_rng(0)) == first()


@pytest.mark.thorough
def test_a_run_goes_on_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    rates: dict[str, Any] = dict.fromkeys(PROGRAM_CHANCES, 0.5)
    config = GridConfig(population=3, mutation=GridMutationConfig(**rates))

    def fitness(genome: GridGenome) -> float:
        return -float(np.square(genome.predict(X[:1, :2]) - 0.3).mean())

    whole = GridPopulation(config, chain([TIMED], (3,)), seed=1)
    whole.evolve(fitness, 1)
    whole.save(tmp_path / "run.npz")
    again = GridPopulation.load(tmp_path / "run.npz")
    for run in (whole, again):
        run.evolve(fitness, 2)
    assert all(again.pool.genome(i) == whole.pool.genome(i) for i in range(3))
    assert len({program_of(whole.pool.genome(i)) for i in range(3)}) > 1


@pytest.mark.thorough
def test_a_program_is_evolved_and_drawn_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("echo.toml", "echo.py", "echo.program.json"):
        shutil.copy(EXAMPLES / name, name)
    run = ["evolve", "echo.toml", "--generations", "1", "--set", "population=3"]
    assert main([*run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fitness"] > 0
    assert main(["program", "draw", "echo/champion", "-o", "champion.svg"]) == 0
    assert "<svg" in Path("champion.svg").read_text()
    assert main(["evolve", "plot", "echo"]) == 0
    assert Path("echo/champion.png").read_bytes()[:4] == b"\x89PNG"
