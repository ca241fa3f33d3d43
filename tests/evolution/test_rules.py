"""The rules of the NEAT paper, one test each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.evolution.genomes import STILL, config, ends, genome, marks
from volumetric.evolution import (
    EvolutionConfig,
    Genome,
    GenomeConfig,
    Innovations,
    Population,
    crossover,
    distance,
    mutate,
)
from volumetric.evolution.genome import validate
from volumetric.evolution.kernels import breeding
from volumetric.evolution.problems import parity, xor
from volumetric.evolution.species import SpeciesTable, apportion, breeders, rank

FULL = [(0, 0, 2, 0.5, True), (1, 1, 2, -0.5, True)]


def fresh() -> Innovations:
    return Innovations.after_first(GenomeConfig())


def test_the_first_generation_has_no_hidden_nodes_and_equal_marks() -> None:
    members = Population(config(), seed=1).genomes
    assert all(member.hidden == 0 and marks(member) == [0, 1] for member in members)
    assert len({member.connections["weight"].tobytes() for member in members}) == len(members)


def test_a_split_keeps_what_flows_and_disables_the_old_connection(rng: np.random.Generator) -> None:
    child = mutate(rng, genome(FULL), config(replace(STILL, add_node=1.0)), fresh())
    assert child.hidden == 1
    old = int(np.flatnonzero(~child.connections["enabled"])[0])
    source, target = ends(child)[old]
    assert ends(child)[2:] == [(source, 3), (3, target)]
    assert child.connections["weight"].tolist() == [0.5, -0.5, 1.0, child.connections["weight"][old]]


def test_only_enabled_connections_are_split(rng: np.random.Generator) -> None:
    rules = config(replace(STILL, add_node=1.0))
    parent = genome([(0, 0, 2, 0.5, False)])
    assert mutate(rng, parent, rules, fresh()) == parent
    parent = genome([(0, 0, 2, 0.5, False), (1, 1, 2, 0.5, True)])
    assert {ends(mutate(rng, parent, rules, fresh()))[2] for _ in range(20)} == {(1, 3)}


def test_the_same_split_in_a_generation_gets_the_same_marks(rng: np.random.Generator) -> None:
    rules, innovations = config(replace(STILL, add_node=1.0)), fresh()
    parent = genome([(0, 0, 2, 0.5, True)])
    first, second = (mutate(rng, parent, rules, innovations) for _ in range(2))
    assert first.nodes["id"].tolist() == second.nodes["id"].tolist()
    assert marks(first) == marks(second)


def test_the_same_split_in_another_generation_gets_other_marks(rng: np.random.Generator) -> None:
    rules, innovations = config(replace(STILL, add_node=1.0)), fresh()
    parent = genome([(0, 0, 2, 0.5, True)])
    first = mutate(rng, parent, rules, innovations)
    innovations.begin_generation(1)
    second = mutate(rng, parent, rules, innovations)
    assert first.nodes["id"].tolist() == [2, 3]
    assert second.nodes["id"].tolist() == [2, 4]
    assert not set(marks(first)[1:]) & set(marks(second)[1:])


def test_one_genome_can_split_a_connection_twice(rng: np.random.Generator) -> None:
    rules, innovations = config(replace(STILL, add_node=1.0)), fresh()
    once = mutate(rng, genome([(0, 0, 2, 0.5, True)]), rules, innovations)
    genes = once.connections.copy()
    genes["enabled"] = [True, False, False]
    twice = mutate(rng, replace(once, connections=genes), rules, innovations)
    assert twice.nodes["id"].tolist() == [2, 3, 4]
    validate(twice)


@pytest.mark.thorough
def test_many_mutations_within_one_generation_find_room(rng: np.random.Generator) -> None:
    rules, innovations = config(replace(STILL, add_node=1.0, add_connection=1.0)), fresh()
    child = genome(FULL)
    for _ in range(60):
        child = mutate(rng, child, rules, innovations)
        validate(child)
    assert child.hidden > 20


def test_a_new_connection_joins_what_was_not_joined(rng: np.random.Generator) -> None:
    rules = config(replace(STILL, add_connection=1.0))
    parent = genome([(0, 0, 3, 1.0, True), (1, 3, 2, 1.0, True)], hidden=[3])
    seen = {ends(mutate(rng, parent, rules, fresh()))[-1] for _ in range(60)}
    assert seen == {(1, 2), (1, 3), (0, 2)}


def test_a_recurrent_genome_may_join_anything(rng: np.random.Generator) -> None:
    rules = config(replace(STILL, add_connection=1.0), recurrent=True)
    parent = genome(FULL, recurrent=True)
    assert {ends(mutate(rng, parent, rules, fresh()))[-1] for _ in range(20)} == {(2, 2)}


def test_weights_are_perturbed_or_replaced_and_stay_within_limits(rng: np.random.Generator) -> None:
    many = genome([(k, k, 1000, 5.0, True) for k in range(1000)], inputs=1000)
    rules = EvolutionConfig(
        genome=GenomeConfig(inputs=1000),
        mutation=replace(STILL, weight_rate=0.8, weight_replace=0.1, weight_power=0.1, weight_max=5.1),
    )
    weights = mutate(rng, many, rules, fresh()).connections["weight"]
    assert 0.05 < (weights == 5.0).mean() < 0.15
    assert 0.06 < (abs(weights) < 4).mean() < 0.14
    assert weights.max() == 5.1
    assert np.isclose(np.std(weights[(weights > 4) & (weights < 5)] - 5), 0.06, atol=0.015)


def test_deleting_a_node_takes_its_connections(rng: np.random.Generator) -> None:
    parent = genome([*FULL, (2, 0, 3, 1.0, True), (3, 3, 2, 1.0, True)], hidden=[3])
    child = mutate(rng, parent, config(replace(STILL, delete_node=1.0)), fresh())
    assert (child.hidden, marks(child)) == (0, [0, 1])


def test_deleting_a_connection(rng: np.random.Generator) -> None:
    tags = [marks(mutate(rng, genome(FULL), config(replace(STILL, delete_connection=1.0)), fresh())) for _ in range(20)]
    assert {tuple(k) for k in tags} == {(0,), (1,)}


A = genome([(0, 0, 2, 1.0, True), (1, 1, 2, 1.0, True), (2, 0, 3, 1.0, True), (3, 3, 2, 1.0, True)], hidden=[3])
B = genome([(0, 0, 2, 2.0, True), (1, 1, 2, 2.0, True), (6, 1, 5, 2.0, True), (7, 5, 2, 2.0, True)], hidden=[5])


def test_matching_genes_come_from_either_parent(rng: np.random.Generator) -> None:
    weights = [tuple(crossover(rng, A, B, config()).connections["weight"][:2].tolist()) for _ in range(60)]
    assert set(weights) == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_disjoint_and_excess_genes_come_from_the_fitter_parent(rng: np.random.Generator) -> None:
    assert {tuple(marks(crossover(rng, A, B, config()))) for _ in range(20)} == {(0, 1, 2, 3)}
    assert {tuple(marks(crossover(rng, B, A, config()))) for _ in range(20)} == {(0, 1, 6, 7)}


def test_equally_fit_parents_give_genes_by_chance(rng: np.random.Generator) -> None:
    children = [crossover(rng, A, B, config(), tie=True) for _ in range(400)]
    assert len({tuple(marks(child)) for child in children}) == 16
    for child in children:
        validate(child)
        hidden = {node for pair in ends(child) for node in pair if node > 2}
        assert set(child.nodes["id"][1:].tolist()) == hidden


def with_biases(parent: Genome, bias: float) -> Genome:
    nodes = parent.nodes.copy()
    nodes["bias"] = bias
    return replace(parent, nodes=nodes)


@pytest.mark.thorough
def test_every_choice_of_a_crossover_is_even(rng: np.random.Generator) -> None:
    """Matching connections, nodes that both have, and with equal fitness each gene of one parent: within 4 σ of ½."""
    a, b = (with_biases(A, 1.0), with_biases(B, 2.0))
    count = 2000
    for tie in (False, True):
        children = [crossover(rng, a, b, config(), tie=tie) for _ in range(count)]
        seen = {f"gene {i}": [i in marks(child) for child in children] for i in ((2, 3, 6, 7) if tie else ())}
        if not tie:
            for i in (0, 1):
                seen[f"weight {i}"] = [child.connections["weight"][i] == 1 for child in children]
        seen["node"] = [child.nodes["bias"][0] == 1 for child in children]
        for what, chosen in seen.items():
            assert abs(np.mean(chosen) - 0.5) < 4 * 0.5 / count**0.5, what


@pytest.mark.thorough
@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_gene_disabled_in_a_parent_is_disabled_in_three_of_four(
    first: bool, second: bool, rng: np.random.Generator
) -> None:
    a, b = genome([(0, 0, 2, 1.0, first)]), genome([(0, 0, 2, 1.0, second)])
    enabled = [bool(crossover(rng, a, b, config()).connections["enabled"][0]) for _ in range(2000)]
    assert abs(np.mean(enabled) - 0.25) < 0.04


def test_a_gene_enabled_in_both_parents_stays_enabled(rng: np.random.Generator) -> None:
    assert all(crossover(rng, A, B, config()).connections["enabled"].all() for _ in range(50))


def test_crossover_of_equals_closes_no_cycle(rng: np.random.Generator) -> None:
    a = genome([(0, 0, 3, 1.0, True), (1, 3, 4, 1.0, True), (2, 4, 2, 1.0, True)], hidden=[3, 4])
    b = genome([(0, 0, 3, 1.0, True), (2, 4, 2, 1.0, True), (5, 4, 3, 1.0, True)], hidden=[3, 4])
    for _ in range(100):
        validate(crossover(rng, a, b, config(), tie=True))


def test_pairs_have_the_fitter_first_and_ties_are_told() -> None:
    """One species of six with scores of three values: all kinds of pairs come up, and nobody is paired with itself."""
    score = np.array([1.0, 3.0, 2.0, 3.0, 1.0, 2.0])
    order, parents = np.argsort(-score, kind="stable"), np.full((200, 3), -1, np.int64)
    start, champion = np.zeros(1, np.int64), order[:1].copy()
    species = np.zeros(len(parents), np.int64)
    breeding.pair(order, start, np.array([6]), champion, score, species, 0.9, 0.2, np.int64(0), np.uint64(7), parents)
    first, other, tie = parents[parents[:, 1] >= 0].T
    assert (first != other).all()
    assert (score[first] >= score[other]).all()
    np.testing.assert_array_equal(tie, score[first] == score[other])
    assert 0 < tie.mean() < 0.5
    assert 0 < (parents[:, 1] < 0).mean() < 0.5


def test_distance_by_hand() -> None:
    rules = config()
    # Two genes match with weight differences 1 and 1, as does the output's bias with 0; 2 are disjoint, 2 excess.
    assert distance(A, B, rules) == pytest.approx(1.0 * 2 + 1.0 * 2 + 0.4 * 2 / 3)
    large = replace(rules, species=replace(rules.species, small_genome=4))
    assert distance(A, B, large) == pytest.approx(2 / 4 + 2 / 4 + 0.4 * 2 / 3)
    assert distance(A, A, rules) == 0
    assert distance(A, B, rules) == distance(B, A, rules)


def test_every_genome_is_near_its_species_representative() -> None:
    population = Population(replace(config(), mutation=EvolutionConfig().mutation, population=100), seed=2)
    population.evolve(xor(), generations=10)
    assert len(population.species) > 1
    assert set(population.species.member.tolist()) == set(range(len(population.species)))


def test_adjusted_fitness_shares_offspring_exactly() -> None:
    assert apportion(np.array([3.0, 1.0, 0.0]), 100, 2).tolist() == [74, 24, 2]
    assert apportion(np.array([1.0, 1.0]), 7, 1).tolist() in ([4, 3], [3, 4])
    assert apportion(np.zeros(3), 10, 2).sum() == 10
    assert apportion(np.arange(5.0), 3, 2).tolist() == [0, 0, 1, 1, 1]


def test_the_size_of_the_population_never_changes() -> None:
    population = Population(replace(config(), mutation=EvolutionConfig().mutation, population=37), seed=4)
    for _ in range(30):
        cohort = population.ask()
        assert len(cohort) == 37
        population.tell(parity(2).score_all(cohort))


def test_a_species_fitness_is_shared_among_its_members() -> None:
    none = np.zeros(2, np.int64)
    table = SpeciesTable(
        ids=none, founded=none, improved=none, best=np.zeros(2), member=np.array([0, 1, 0, 0]), threshold=3.0
    )
    ranking = rank(table, np.array([1.0, 8.0, 2.0, 6.0]))
    assert ranking.order.tolist() == [3, 2, 0, 1]
    assert ranking.mean.tolist() == [3.0, 8.0]
    assert ranking.best.tolist() == [6.0, 8.0]


def test_stagnant_species_have_no_offspring_unless_they_are_best() -> None:
    table = SpeciesTable(
        ids=np.arange(4), founded=np.zeros(4, np.int64), improved=np.array([0, 20, 0, 0]),
        best=np.array([1.0, 2.0, 9.0, 8.0]), member=np.arange(4), threshold=3.0,
    )  # fmt: skip
    assert breeders(table, 20, refocus=False, config=config()).tolist() == [False, True, True, True]
    assert breeders(table, 20, refocus=True, config=config()).tolist() == [False, False, True, True]


def test_champions_of_large_species_live_on_unchanged() -> None:
    rules = EvolutionConfig(population=50)
    population, seen = Population(rules, seed=6), 0
    for _ in range(20):
        scores = xor().score_all(population.ask())
        population.tell(scores)
        sizes = np.bincount(population.species.member)
        large = np.flatnonzero(sizes >= rules.reproduction.elitism_from)
        alive = breeders(population.species, population.generation, refocus=False, config=rules)
        champions = [
            max(np.flatnonzero(population.species.member == s), key=lambda row: scores[row]) for s in large if alive[s]
        ]
        expected = {population.pool.genome(int(row)) for row in champions}
        population.ask()
        seen += len(expected)
        assert expected <= set(population.genomes)
    assert seen > 20


def test_less_can_be_better() -> None:
    rules = replace(EvolutionConfig(), fitness_criterion="min", fitness_threshold=0.1)
    population = Population(rules, seed=7)
    while not population.solved and population.generation < 149:
        population.tell(4.0 - xor().score_all(population.ask()))
    assert population.champion is not None
    assert population.champion.fitness <= 0.1


def test_every_genome_of_a_run_is_valid() -> None:
    mutation = replace(
        EvolutionConfig().mutation, delete_node=0.2, delete_connection=0.2, add_node=0.4, add_connection=0.6
    )
    for recurrent in (False, True):
        rules = EvolutionConfig(population=60, mutation=mutation, genome=GenomeConfig(recurrent=recurrent))
        population = Population(rules, seed=8)
        for generation in range(25):
            cohort = population.ask()
            members: list[Genome] = population.genomes
            for member in members:
                validate(member)
            # Equal fitness exercises the crossover of equals.
            population.tell(np.zeros(len(cohort)) if generation % 2 else xor().score_all(cohort))
