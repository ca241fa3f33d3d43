"""`evolve` in one call, and what its result can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from volumetric.base.errors import UnsupportedError, VolumetricError
from volumetric.evolution import EvolutionConfig, Genome, Population, SpeciesConfig, evolve, problems

X, Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 1, 1, 0])


def fitness(net: Genome) -> Any:
    return 4 - ((net.activate(X)[:, 0] - Y) ** 2).sum()


def test_a_call_is_a_population_that_evolves() -> None:
    result = evolve(fitness, 2, 1, population=30, generations=4, seed=1)
    champion = Population(EvolutionConfig(population=30), seed=1).evolve(fitness, 4)
    assert result.champion == champion.genome
    assert (result.fitness, result.generation, result.reason) == (champion.fitness, champion.generation, "generations")
    assert [event.generation for event in result.history] == [0, 1, 2, 3]
    assert max(event.best for event in result.history) == result.fitness
    more = result.population.evolve(fitness, 1)
    assert more.fitness >= result.fitness


def test_settings_reach_their_sections() -> None:
    config = EvolutionConfig(species=SpeciesConfig(target=4))
    options: dict[str, Any] = {"add_node": 0.3, "recurrent": True, "species": {"elitism": 3}, "on_failure": "raise"}
    used = evolve(fitness, 2, 1, population=10, generations=1, seed=1, config=config, **options).population.config
    assert (used.mutation.add_node, used.genome.recurrent, used.on_failure, used.population) == (0.3, True, "raise", 10)
    assert (used.species.target, used.species.elitism) == (4, 3)


@pytest.mark.parametrize(
    ("source", "widths"),
    [
        ("xor", (2, 1)),
        ({"kind": "parity", "bits": 3}, (3, 1)),
        (problems.xor(), (2, 1)),
        ((X, Y), (2, 1)),
        (([0.0, 0.5, 1.0], [0.0, 0.25, 1.0]), (1, 1)),
    ],
    ids=["name", "table", "problem", "samples", "lists"],
)
def test_a_problem_sets_the_widths(source: Any, widths: tuple[int, int]) -> None:
    champion = evolve(source, population=10, generations=1, seed=1).champion
    assert (champion.interface.inputs, champion.interface.outputs) == widths


@pytest.mark.parametrize("name", ["cartpole", "CartPole-v1"])
def test_an_environment_is_a_problem_by_its_name(name: str) -> None:
    pytest.importorskip("gymnasium")
    result = evolve(name, population=10, generations=1, seed=1)
    assert result.champion.interface.inputs == 4
    assert result.fitness >= 8


def test_a_champion_is_saved_as_a_model_or_as_a_genome(tmp_path: Path) -> None:
    result = evolve("xor", population=20, generations=3, seed=1)
    result.save(tmp_path / "model")
    model = volumetric.load(tmp_path / "model", device="reference")
    np.testing.assert_allclose(model.predict(X), result.predict(X), atol=1e-5)
    result.save(tmp_path / "genome.json")
    assert Genome.load(tmp_path / "genome.json") == result.champion
    recurrent = evolve("xor", population=20, generations=1, seed=1, recurrent=True)
    with pytest.raises(UnsupportedError) as caught:
        recurrent.save(tmp_path / "other")
    assert "save('other.json')" in str(caught.value.hint)
    assert not (tmp_path / "other").exists()


def test_a_result_shows_itself() -> None:
    result = evolve("xor", population=10, generations=3, seed=1)
    assert f"{result.fitness:.6g}" in repr(result)
    assert "<svg" in result._repr_html_()
    assert (result([0, 1]) == result.activate([0, 1])).all()


def test_a_number_may_be_an_array_of_one() -> None:
    assert evolve(lambda net: net.activate([0, 1]), population=10, generations=1, seed=1).fitness > 0


class Even:
    """An environment: the reward is 1 if the action is the sign of the first number."""

    observation_space: Any
    action_space: Any

    def __init__(self, steps: int = 5) -> None:
        from gymnasium import spaces

        self.observation_space, self.action_space = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
        self.spec, self.steps = None, steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.time = np.random.default_rng(seed), 0
        self.seen = self.random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen, {}

    def step(self, action: int) -> Any:
        reward, self.time = float(action == int(self.seen[0] > 0)), self.time + 1
        self.seen = self.random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen, reward, False, self.time >= self.steps, {}

    def close(self) -> None: ...


def test_environments_are_passed_as_classes_functions_and_objects() -> None:
    pytest.importorskip("gymnasium")
    ways: tuple[Any, ...] = (Even, Even(), lambda: Even(steps=5))
    results = [evolve(of, population=12, generations=2, seed=1) for of in ways]
    assert 0 < results[0].fitness <= 5
    assert all(result.champion == results[0].champion for result in results)
    short: Any = Even(3)
    assert evolve(short, population=12, generations=2, seed=1).fitness <= 3
    gym = problems.Gym(entry=Even, arguments=(("steps", 2),), trials=3)
    assert (gym.id, gym.steps, gym.threshold) == ("Even", 1000, None)
    assert evolve(gym, population=12, generations=1, seed=1).fitness <= 2


def test_wrappers_of_an_environment_are_played() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: -reward)
    assert evolve(wrapped, population=5, generations=1, seed=1).fitness < 0


def test_a_history_lists_values_by_name_and_shows_a_table() -> None:
    result = evolve("xor", population=10, generations=3, seed=1)
    history = result.history
    assert repr(result.population).startswith("<Population of 10 genomes, generation 2, best fitness")
    assert history["fitness"] == history["best"] == [event.best for event in history]
    assert [line.split()[0] for line in repr(history).splitlines()] == ["generation", "1", "2", "3"]
    with pytest.raises(VolumetricError, match="generations have no 'loss'"):
        history["loss"]


@pytest.mark.parametrize("name", ["c.c", "c.py", "c.json", "c.npz"])
def test_a_suffix_names_the_format(name: str, tmp_path: Path) -> None:
    result = evolve("xor", population=10, generations=1, seed=1)
    result.save(tmp_path / name)
    assert (tmp_path / name).is_file()
    with pytest.raises(UnsupportedError, match="cannot be written"):
        result.save(tmp_path / "champion.pt")


SLIPS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "all genomes": (lambda genomes, config: None, {}, "neat-python's signature", "def fitness(genome)"),
    "nothing returned": (lambda net: None, {}, "returned None", "return a number"),
    "many numbers": (lambda net: net.activate(X), {}, "an array of shape (4, 1)", ""),
    "a misspelled problem": ("xorr", {}, "unknown kind 'xorr'", "'xor'"),
    "a number": (3, {}, "fitness is a int", "CartPole-v1"),
    "a class": (problems.Gym, {}, "is the class Gym", "Gym(…)"),
    "a misspelled keyword": (fitness, {"populatoin": 3}, "no argument 'populatoin'", "'population'"),
    "a file of neat-python": (fitness, {"config_file": "a"}, "no argument 'config_file'", "EvolutionConfig.load"),
    "a key of two sections": (fitness, {"elitism": 1}, "in several sections", "species="),
    "text": (fitness, {"population": "3"}, "population: Expected `int`", "without quotes"),
    "samples with NaN": (([[0, np.nan]], [1]), {}, "inputs[0, 1] is not finite", "fill"),
    "a function without an environment": (lambda: 3, {}, "no environment of Gymnasium, but int", "takes a genome"),
    "another algorithm": ("xor", {"algorithm": "grid"}, "no argument 'algorithm'", "GridPopulation"),
    "no generations": (fitness, {"generations": 0}, "generations must be at least 1", "100"),
    "other widths": ("xor", {"inputs": 3}, "genome.inputs is 3", "remove"),
}


@pytest.mark.parametrize(("source", "options", "message", "hint"), SLIPS.values(), ids=SLIPS)
def test_a_slip_is_answered(source: Any, options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(VolumetricError) as caught:
        evolve(source, **{"population": 5, "generations": 1, **options})
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")
