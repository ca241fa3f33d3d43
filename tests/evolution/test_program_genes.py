"""Carriers, slots, masks and losses of programs as genes: they come, change and go, and cross, and the program runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as changed_to

from tests.evolution.test_programs import AT, EXAMPLES, RULES, X, check, first, program_of, spec_of
from volumetric.builders import chain
from volumetric.cli import main
from volumetric.evolution import compare, extract_dna
from volumetric.evolution.grids.grid_crossover import crossover, distance
from volumetric.evolution.grids.grid_genome import GridGenome, GridInnovations
from volumetric.evolution.programs.mask_genes import changed_mask, fit_masks, new_mask
from volumetric.evolution.programs.program_change import genes_of
from volumetric.evolution.programs.program_mutation import CHANGES, apply_change
from volumetric.evolution.programs.region_genes import change_slots, changed_learning, learning_with
from volumetric.network import initialise
from volumetric.network.weight_store import Params
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits, Mask, Rects, Tile
from volumetric.program.layer.program_declaration import Program as Declared
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.recipes import recipe_of
from volumetric.program.layer.region import Identity, Region
from volumetric.program.layer.region_learning import Learning

GENES = ("change_carrier", "change_slots", "change_mask", "change_learning")


@pytest.mark.thorough
def test_all_kinds_of_genes_come_and_every_program_runs() -> None:
    genome, innovations, rng = first("carried"), GridInnovations(next=10), np.random.default_rng(0)
    seen: set[str] = set()
    for step in range(150):
        innovations.begin_generation()
        name = (*GENES, "drop_region")[step % 5]
        genome = apply_change(genome, AT, CHANGES[name], innovations.mark, rng) or genome
        regions, edges = program_of(genome).canvas.regions.values(), program_of(genome).edges
        seen |= {region.carrier for region in regions}
        seen |= {type(edge.mask).__name__ for edge in edges}
        seen |= {"slots" for region in regions if region.identity is not None}
        seen |= {loss for region in regions if region.learning is not None for loss in region.learning.losses or ()}
        if step % 50 == 0:
            check(genome)
            assert genome.predict(X).shape == (2, 5, 2)
    assert {"deterministic", "filter", "residual", "memory", "slots", "Rects", "Bits"} <= seen
    assert {"next_step", "masked_prediction"} <= seen


@pytest.mark.thorough
@pytest.mark.parametrize("name", GENES)
def test_new_genes_compute_the_same_at_first(name: str) -> None:
    """Of a program that has none of them: filters believe all, masks hide nothing, losses weigh 0, no twin is heard."""
    genome, innovations, programs = first("timed"), GridInnovations(next=10), set[Declared]()
    before = genome.predict(X)
    for seed in range(10):
        innovations.begin_generation()
        child = apply_change(genome, AT, CHANGES[name], innovations.mark, np.random.default_rng(seed))
        if child is None:
            continue
        programs.add(program_of(child))
        check(child)
        np.testing.assert_allclose(child.predict(X), before, rtol=0, atol=1e-6)
        if name in ("change_mask", "change_learning"):
            assert distance(genome, child, RULES) == 0
        else:
            assert distance(genome, child, RULES) > 0
    assert len(programs) >= 3
    if name == "change_carrier":
        added = [set(program.canvas.regions) - set(program_of(genome).canvas.regions) for program in programs]
        assert {len(names) for names in added} == {0, 1}  # filters in place, and twins


@pytest.mark.thorough
def test_births_begin_open_and_slots_that_stay_keep_what_they_are() -> None:
    a = first("whole")
    program = program_of(a)
    plan = changed_to(program.canvas.regions["plan"], identity=Identity(3))
    one = changed_to(program, canvas=changed_to(program.canvas, regions={**program.canvas.regions, "plan": plan}))
    network = chain([replace(spec_of(a), program=one)], (3,))
    genome = GridGenome.first(network, initialise(network, 5))
    before, births, sizes = genome.predict(X), 0, set[int]()
    slots = f"{AT}/regions.plan.slots"
    for seed in range(60):
        child = apply_change(genome, AT, change_slots, GridInnovations(next=10).mark, np.random.default_rng(seed))
        if child is None:
            continue
        now = program_of(child).canvas.regions["plan"].identity
        if now is None or program_of(child).canvas.regions.keys() != one.canvas.regions.keys():
            continue
        rows = min(now.capacity, 3)
        sizes.add(now.capacity)
        assert (child.params[slots].values()[:rows] == genome.params[slots].values()[:rows]).all()
        if now.births:
            births += 1
            np.testing.assert_allclose(child.predict(X), before, rtol=0, atol=1e-6)
    assert births
    assert len(sizes) >= 4


def test_masks_and_losses_are_as_far_apart_as_they_differ() -> None:
    a = first("carried")
    program = program_of(a)
    edge = program.edges[0]
    read, written = (len(facts_of(program).place(name).positions) for name in (edge.reads, edge.writes))

    def with_mask(mask: Mask | None) -> GridGenome:
        edges = tuple(changed_to(one, mask=mask) if one.name == edge.name else one for one in program.edges)
        return _with(a, changed_to(program, edges=edges))

    def with_losses(**losses: float) -> GridGenome:
        regions = {**program.canvas.regions}
        regions[edge.writes] = changed_to(regions[edge.writes], learning=Learning("none", losses))
        return _with(a, changed_to(program, canvas=changed_to(program.canvas, regions=regions)))

    genes = len(genes_of(program))
    some = np.ones((written, read))
    some[0, 0] = 0
    assert distance(a, with_mask(Bits(np.ones((written, read)))), RULES) == 0
    assert distance(a, with_mask(Bits(some)), RULES) == pytest.approx(RULES.weight / genes / some.size)
    assert distance(a, with_losses(next_step=0.0), RULES) == 0
    light, heavy = with_losses(next_step=1.0), with_losses(next_step=3.0)
    assert distance(light, heavy, RULES) == pytest.approx(RULES.weight / genes / 2)
    assert distance(a, heavy, RULES) == pytest.approx(RULES.weight / genes)


def _with(genome: GridGenome, program: Declared) -> GridGenome:
    """The genome with another program; parameters of one name are the same."""
    network = chain([replace(spec_of(genome), program=program)], (3,))
    fresh = initialise(network, 5)
    return GridGenome.first(network, Params({key: genome.params.get(key, store) for key, store in fresh.items()}))


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("mutation.change_carriers=0.1", "change_carrier"),
        ("mutation.change_mask=1.5", "between 0 and 1"),
        ("mutation.change_slots=often", "change_slots"),
    ],
)
def test_settings_of_genes_are_checked(setting: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evolve", str(EXAMPLES / "echo.toml"), "--set", setting]) != 0
    assert what in capsys.readouterr().err


@pytest.mark.parametrize("mask", [Tile((1, 1)), Rects([(0, 1, 0, 1)]), Bits(["11", "01"])])
def test_masks_change_and_fit(mask: Mask) -> None:
    """They stay masks of their edge, whatever is changed of them."""
    program, rng, kinds = program_of(first("carried")), np.random.default_rng(2), set[type]()
    edge = next(edge for edge in program.edges if facts_of(program).place(edge.reads).through == "positions")
    edge = changed_to(edge, mask=mask)
    for _ in range(60):
        new = new_mask(program, edge, rng) if edge.mask is None else changed_mask(program, edge, rng)
        kinds.add(type(new))
        edge = changed_to(edge, mask=new)
        edges = tuple(edge if other.name == edge.name else other for other in program.edges)
        fitted = fit_masks(changed_to(program, edges=edges))
        facts_of(fitted)
        assert next(other for other in fitted.edges if other.name == edge.name).mask == new
    assert {Rects, Bits, type(None)} <= kinds


def test_masks_follow_their_regions() -> None:
    """Blocks and pairs are cut, what came looks at all, and what has no positions has no mask."""
    program = program_of(first("carried"))
    regions = {
        **program.canvas.regions,
        "a": Region(((0, 1), (0, 1), (0, 2))),
        "b": Region(((0, 1), (0, 1), (0, 2)), identity=Identity(3)),
    }
    canvas = changed_to(program.canvas, regions=regions)
    masks: list[tuple[Edge, Mask | None]] = [
        (Edge("a", "a", mask=Rects([(0, 2, 1, 2), (1, 9, 0, 9), (2, 3, 0, 1)]), name="e1"),
         Rects([(0, 2, 1, 2), (1, 2, 0, 2)])),
        (Edge("a", "a", mask=Rects([(4, 5, 0, 1)]), name="e2"), None),
        (Edge("a", "a", mask=Bits(["010", "000", "111"]), name="e3"), Bits(["01", "00"])),
        (Edge("a", "a", mask=Bits(["0"]), name="e4"), Bits(["01", "11"])),
        (Edge("a", "a", mask=Bits(["0"] * 3), name="e5"), Bits(["01", "01"])),
        (Edge("b", "a", mask=Bits(["1"]), name="e6"), None),
    ]  # fmt: skip
    fitted = fit_masks(changed_to(program, canvas=canvas, edges=tuple(edge for edge, _ in masks)))
    assert [edge.mask for edge in fitted.edges] == [want for _, want in masks]
    assert fit_masks(fitted) is fitted
    facts_of(fitted)


def test_losses_change_and_go_with_their_carrier() -> None:
    rng, region = np.random.default_rng(3), Region(((0, 1), (0, 2)), carrier="filter")
    seen: set[str] = set()
    for _ in range(60):
        region = changed_learning(region, rng)
        seen |= set(region.learning.losses or ()) if region.learning is not None else set()
    assert seen == {"next_step", "masked_prediction", "predictive_consistency", "calibration", "sparsity"}
    region = Region(((0, 1), (0, 2)), carrier="filter", learning=Learning("posterior_match"))
    assert learning_with(region, "filter") == Learning("posterior_match")
    left = learning_with(region, "residual")
    assert left is not None
    assert left.losses == {"calibration": 1.0}
    sparse = changed_to(region, learning=Learning("none", {"task": 0.5, "sparsity": 2.0}))
    assert learning_with(sparse, "memory") == Learning("none", {"task": 0.5})


def test_children_have_these_genes_and_dna_tells_them() -> None:
    a = first("whole")
    program = program_of(a)
    regions = {
        name: changed_to(region, identity=Identity(2)) if name == "plan" else region
        for name, region in program.canvas.regions.items()
    }
    regions["eye"] = changed_to(regions["eye"], learning=Learning("ssl_prediction"))
    edges = tuple(
        changed_to(edge, mask=Bits([[1]] * 2)) if edge.name == "belief<eye#0" else edge for edge in program.edges
    )
    other = changed_to(program, canvas=changed_to(program.canvas, regions=regions), edges=edges)
    network = chain([replace(spec_of(a), program=other)], (3,))
    b = GridGenome.first(network, initialise(network, 5))
    check(b)
    comparison = compare(extract_dna(a.network, a.params), extract_dna(b.network, b.params))
    assert {path.removeprefix(f"{AT}/") for path in comparison.only_b} == {"regions.plan", "regions.eye"}
    whole = 0
    for seed in range(8):
        child = crossover(a, b, np.random.default_rng(seed))
        check(child)
        grown = program_of(child)
        whole += grown.canvas.regions["plan"].identity is not None
        whole += grown.canvas.regions["eye"].learning is not None
        whole += next(edge for edge in grown.edges if edge.name == "belief<eye#0").mask is not None
        for name, region in grown.canvas.regions.items():
            assert region in (program.canvas.regions[name], other.canvas.regions[name])
        assert [*recipe_of(facts_of(grown).place("eye"))] in ([], ["next_step", "masked_prediction"])
    assert 4 <= whole <= 20  # of 24
