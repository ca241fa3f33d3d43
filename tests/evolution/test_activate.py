from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.evolution.genomes import genome
from volumetric.base.errors import ShapeError
from volumetric.evolution import Activator, EvolutionConfig, GenomeConfig, MutationConfig, Population, activate
from volumetric.evolution.activate import activate_reference
from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems import Table

WILD = MutationConfig(
    add_node=0.3, add_connection=0.6, delete_node=0.1, delete_connection=0.1, enabled_rate=0.1, activation_rate=0.5,
    activations=tuple(name for name in ACTIVATIONS if name != "square"),
    aggregation_rate=0.3, aggregations=AGGREGATIONS,
    weight_min=-2, weight_max=2, bias_min=-2, bias_max=2,
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("recurrent", [False, True])
def test_kernel_agrees_with_numpy(recurrent: bool, rng: np.random.Generator) -> None:
    shape = GenomeConfig(inputs=3, outputs=2, recurrent=recurrent, steps=3 if recurrent else 1)
    population = Population(EvolutionConfig(population=60, mutation=WILD, genome=shape), seed=5)
    x = rng.normal(size=(7, 3))
    problem = Table.of(x, rng.normal(size=(7, 2)), goal=1e9)
    population.evolve(problem, generations=12)
    got = activate(population.pool, x)
    assert max(genome.hidden for genome in population.genomes) > 3
    for row, member in enumerate(population.genomes):
        np.testing.assert_allclose(got[row], activate_reference(member, x), rtol=1e-9, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_activation_and_aggregation(activation: str, aggregation: str, rng: np.random.Generator) -> None:
    member = genome([(0, 0, 2, 1.5, True), (1, 1, 2, -0.5, True), (2, 0, 3, 1.0, False)], hidden=[3])
    nodes = member.nodes.copy()
    nodes["activation"] = ACTIVATIONS.index(activation)
    nodes["aggregation"] = AGGREGATIONS.index(aggregation)
    nodes["bias"] = 0.3
    member = replace(member, nodes=nodes)
    x = rng.normal(size=(50, 2))
    np.testing.assert_allclose(member.activate(x), activate_reference(member, x), rtol=1e-9, atol=1e-12)


def test_values_by_hand() -> None:
    member = genome(
        [(0, 0, 2, 2.0, True), (1, 1, 2, 1.0, False), (2, 1, 3, 3.0, True), (3, 3, 2, 1.0, True)], hidden=[3]
    )
    nodes = member.nodes.copy()
    nodes["activation"] = ACTIVATIONS.index("linear")
    nodes["bias"] = 0.5, 0.25
    y = replace(member, nodes=nodes).activate(np.array([[1.0, 10.0], [0.0, -1.0]]))
    np.testing.assert_allclose(y, [[2 + 30.25 + 0.5], [-2.75 + 0.5]])


def test_recurrent_state_is_kept_until_reset() -> None:
    member = genome([(0, 0, 1, 1.0, True), (1, 1, 1, 1.0, True)], recurrent=True, inputs=1)
    nodes = member.nodes.copy()
    nodes["activation"] = ACTIVATIONS.index("linear")
    run = Activator(replace(member, nodes=nodes))
    assert [float(run(np.array([1.0]))[0]) for _ in range(3)] == [1.0, 2.0, 3.0]
    run.reset()
    assert float(run(np.array([5.0]))[0]) == 5.0


def test_all_nodes_of_a_recurrent_genome_move_at_once() -> None:
    member = genome([(0, 0, 2, 1.0, True), (1, 2, 1, 1.0, True)], hidden=[2], recurrent=True, inputs=1)
    nodes = member.nodes.copy()
    nodes["activation"] = ACTIVATIONS.index("linear")
    run = Activator(replace(member, nodes=nodes))
    assert [float(run(np.array([x]))[0]) for x in (1.0, 0.0, 0.0)] == [0.0, 1.0, 0.0]


def test_inputs_of_its_own_for_each_genome(rng: np.random.Generator) -> None:
    members = [genome([(0, 0, 2, w, True), (1, 1, 2, 1.0, True)]) for w in (1.0, -1.0, 2.0)]
    x = rng.normal(size=(3, 4, 2))
    got = activate(Pool.of(members), x)
    for row, member in enumerate(members):
        np.testing.assert_array_equal(got[row], member.activate(x[row]))


@pytest.mark.parametrize("shape", [(2, 3), (2,), (4, 2, 2)])
def test_wrong_inputs(shape: tuple[int, ...]) -> None:
    pool = Pool.of([genome([(0, 0, 2, 1.0, True)])] * 3)
    with pytest.raises(ShapeError, match="inputs have shape"):
        activate(pool, np.zeros(shape))


def test_the_number_of_samples_cannot_change_within_a_state() -> None:
    run = Activator(genome([(0, 0, 2, 1.0, True)], recurrent=True))
    run(np.zeros((3, 2)))
    with pytest.raises(ShapeError, match="state"):
        run(np.zeros((4, 2)))


@pytest.mark.thorough
@pytest.mark.parametrize("recurrent", [False, True])
def test_one_case_is_that_case_of_many_in_whatever_form(recurrent: bool, rng: np.random.Generator) -> None:
    shape = GenomeConfig(inputs=3, outputs=2, recurrent=recurrent, steps=3 if recurrent else 1)
    population = Population(EvolutionConfig(population=40, mutation=WILD, genome=shape), seed=5)
    x = rng.normal(size=(5, 3))
    population.evolve(Table.of(x, rng.normal(size=(5, 2)), goal=1e9), generations=8)
    cohort = population.ask()
    for row in range(len(cohort)):
        member, alone = cohort.genome(row), population.pool.genome(row)
        whole = member.activate(x)
        np.testing.assert_allclose(whole, activate_reference(member, x), rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(alone.activate(x), whole)
        for i, case in enumerate(x):
            forms = [case, case.tolist(), tuple(case.tolist()), list(case), case.astype(np.float64)[::1]]
            values = [one.activate(form) for one in (member, alone) for form in forms]
            np.testing.assert_allclose(values[0], whole[i], rtol=1e-12, atol=1e-14)
            for value in values[1:]:
                np.testing.assert_array_equal(value, values[0])


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("wrong", [(1.0,), [1.0, 2.0, 3.0], 1.0, [], [[1.0], [2.0]], np.zeros(3), np.zeros((2, 2, 2))])
def test_a_case_of_another_width(wrong: Any, recurrent: bool) -> None:
    with pytest.raises(ShapeError, match="inputs have shape"):
        genome([(0, 0, 2, 1.0, True)], recurrent=recurrent).activate(wrong)


def test_numbers_of_all_kinds_are_inputs_and_a_column_is_many_cases() -> None:
    member = genome([(0, 0, 1, 1.0, True)], inputs=1)
    whole = member.activate(np.array([[1.0], [2.0]]))
    for form in ([1], (True,), [np.float32(1)], np.array([1]), np.array([1], np.float32)):
        np.testing.assert_allclose(member.activate(form), whole[0])
    for column in ([[1.0]], [np.array([1.0])], np.array([[1.0]])):
        np.testing.assert_array_equal(member.activate(column), whole[:1])
    with pytest.raises(ValueError, match="could not convert"):
        member.activate(["one"])  # pyright: ignore[reportArgumentType]


def test_threads_activate_one_genome_together(rng: np.random.Generator) -> None:
    member = genome([(0, 0, 2, 2.0, True), (1, 1, 3, 3.0, True), (2, 3, 2, 1.0, True)], hidden=[3])
    cases = [tuple(case) for case in rng.normal(size=(400, 2)).tolist()]
    alone = [member.activate(case)[0] for case in cases]
    with ThreadPoolExecutor(4) as team:
        assert [y[0] for y in team.map(member.activate, cases)] == alone


def test_links_stay_here_when_genomes_travel() -> None:
    cohort = Population(EvolutionConfig(population=300), seed=1).ask()
    member = cohort.genome(3)
    fresh = len(pickle.dumps(cohort)), len(pickle.dumps(member))
    y = member.activate([0.5, 0.25])
    assert (len(pickle.dumps(cohort)), len(pickle.dumps(member))) == fresh
    assert fresh[1] < 2000
    for copy in (pickle.loads(pickle.dumps(member)), pickle.loads(pickle.dumps(cohort)).genome(3), replace(member)):
        assert copy == member
        np.testing.assert_array_equal(copy.activate([0.5, 0.25]), y)
