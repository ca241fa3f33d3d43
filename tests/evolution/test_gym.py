from __future__ import annotations

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.builders import sequential
from volumetric.evolution import (
    EvolutionConfig,
    GenomeConfig,
    GridConfig,
    GridGenome,
    GridPopulation,
    LinkedPool,
    Population,
)
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.evolution_job import job_from, open_problem, open_run
from volumetric.evolution.grids.grid_genome import GridPool
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems import Gym
from volumetric.evolution.problems.worlds import ArrayWorlds, SingleWorlds, actions_of, input_width, output_widths
from volumetric.layers import GRU, Dense
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore

CARTPOLE = Gym(id="CartPole-v1")


def population(problem: Gym, size: int = 12, seed: int = 1) -> Population:
    return Population(problem.configure(EvolutionConfig(population=size)), seed=seed)


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("CartPole-v1", (4, 1)),
        ("Acrobot-v1", (6, 3)),
        ("Pendulum-v1", (3, 1)),
        ("FrozenLake-v1", (16, 4)),
        ("Blackjack-v1", (45, 1)),
    ],
)
def test_spaces_become_widths_and_episodes_are_played(name: str, widths: tuple[int, int]) -> None:
    problem = Gym(id=name, max_steps=20)
    assert problem.widths == widths
    run = population(problem, 4)
    first, again = (np.asarray(problem.score_all(run.ask())) for _ in range(2))
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)


def test_cartpole_is_solved_and_confirmed_on_episodes_that_no_training_saw() -> None:
    run = population(CARTPOLE, 100, seed=3)
    champion = run.evolve(CARTPOLE, 40)
    assert run.solved
    assert champion.fitness >= 475
    assert CARTPOLE.confirm(champion.genome) == champion.fitness


def test_a_lucky_genome_does_not_end_the_run() -> None:
    @dataclasses.dataclass
    class Strict:
        inner: Gym

        def score_all(self, cohort: Cohort) -> np.ndarray:
            return np.full(len(cohort), 500.0)

        def confirm(self, genome: object) -> float:
            return 10.0

    run = population(CARTPOLE)
    champion = run.evolve(Strict(CARTPOLE), 3)
    assert not run.solved
    assert champion.fitness == 10.0
    assert run.generation == 2


def test_a_genome_scores_the_same_alone_and_among_others() -> None:
    run = population(dataclasses.replace(CARTPOLE, episodes=2), 10)
    cohort = run.ask()
    together = np.asarray(CARTPOLE.score_all(cohort))
    for row in (0, 7):
        alone = dataclasses.replace(cohort, pool=Pool.of([cohort.genome(row)]), first_id=cohort.first_id + row)
        assert CARTPOLE.score_all(alone)[0] == together[row]


def test_arrays_and_single_worlds_agree() -> None:
    arrays, single = ArrayWorlds.of(CARTPOLE, 3), SingleWorlds(CARTPOLE, 3)
    assert arrays is not None
    rng = np.random.default_rng(0)
    starts = arrays.reset([4, 5, 4])
    np.testing.assert_array_equal(starts[0], starts[2])
    # The environment draws its first state in another order when it is one of many: take over the state itself.
    single.reset([4, 5, 4])
    for world, state in zip(single._worlds, arrays._worlds.unwrapped.state.T, strict=True):
        world.unwrapped.state = tuple(state)  # pyright: ignore[reportAttributeAccessIssue]  (CartPole has it)
    alive = np.ones(3, np.bool_)
    for _ in range(30):
        outputs = rng.normal(size=(3, 1))
        a, b = arrays.step(outputs, alive), single.step(outputs, alive)
        np.testing.assert_allclose(a[0][alive], b[0][alive], rtol=1e-5)
        np.testing.assert_array_equal(a[2][alive], b[2][alive])
        alive &= ~a[2]
    single.close()
    arrays.close()


def test_recurrent_genomes_keep_their_state_within_an_episode() -> None:
    config = EvolutionConfig(population=6, genome=GenomeConfig(recurrent=True, steps=2))
    run = Population(CARTPOLE.configure(config), seed=2)
    assert np.isfinite(np.asarray(CARTPOLE.score_all(run.ask()))).all()


def test_continuous_actions_cover_their_range() -> None:
    worlds = SingleWorlds(Gym(id="Pendulum-v1"), 2)
    actions = worlds._actions(np.array([[-7.0], [0.5]]))
    np.testing.assert_allclose(actions, [[-2.0], [1.0]])
    assert actions.dtype == np.float32
    worlds.close()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"id": "Cartpole-v9"}, UnsupportedError, "Cartpole-v9"),
        ({"id": "CartPole-v1", "episodes": 0}, SpecError, "at least 1"),
        ({"id": "Acrobot-v1", "arguments": (("no_such", 1),)}, SpecError, "no_such"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Gym(**arguments)


@pytest.mark.thorough
@pytest.mark.parametrize(("recurrent", "outputs"), [(False, 1), (True, 1), (False, 2)])
def test_the_compiled_cart_is_gymnasiums(recurrent: bool, outputs: int) -> None:
    shape = GenomeConfig(recurrent=recurrent, steps=2 if recurrent else 1, outputs=outputs)
    config = EvolutionConfig(population=30, genome=shape)
    run = Population(CARTPOLE.configure(config), seed=4)
    run.evolve(CARTPOLE, 3)
    cohort = run.ask()
    slow = dataclasses.replace(CARTPOLE, compiled=False)
    scores = np.asarray(CARTPOLE.score_all(cohort))
    np.testing.assert_array_equal(scores, slow.score_all(cohort))
    assert len(np.unique(scores)) > 5


def test_the_widths_are_set_where_nobody_did() -> None:
    bare = Population(EvolutionConfig(population=12), seed=1)
    bare.evolve(CARTPOLE, 2)
    configured = population(CARTPOLE)
    configured.evolve(CARTPOLE, 2)
    assert bare.genomes == configured.genomes
    assert bare.config == configured.config


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (5, 1), (4, 3)])
@pytest.mark.parametrize("compiled", [True, False])
def test_genomes_of_other_widths_are_not_played(inputs: int, outputs: int, compiled: bool) -> None:
    config = EvolutionConfig(population=3, genome=GenomeConfig(inputs=inputs, outputs=outputs))
    run, problem = Population(config, seed=1), dataclasses.replace(CARTPOLE, compiled=compiled)
    with pytest.raises(SpecError, match="genome"):
        run.evolve(problem, 1)
    with pytest.raises(ShapeError):
        problem.score_all(run.ask())


def test_the_compiled_cart_reads_four_numbers_of_each_genome() -> None:
    run = population(CARTPOLE, 3)
    with pytest.raises(ShapeError, match="bodies"):
        LinkedPool(run.pool).play_cartpole(np.zeros((2, 4)), 5)


def test_what_the_configuration_names_stays() -> None:
    named = EvolutionConfig(genome=GenomeConfig(activation="relu"), fitness_threshold=7.0)
    config = CARTPOLE.configure(named)
    assert config.genome.activations == ("relu", "relu")
    assert config.fitness_threshold == 7.0
    assert CARTPOLE.configure(EvolutionConfig()).genome.activations == ("tanh", "tanh")
    with pytest.raises(SpecError, match="maximises fitness"):
        CARTPOLE.configure(EvolutionConfig(fitness_criterion="min"))


def test_genomes_that_were_bred_for_other_widths_do_not_go_on() -> None:
    run = Population(EvolutionConfig(population=4), seed=1)
    run.evolve(lambda genome, rng: rng.random(), 2)
    with pytest.raises(SpecError, match="generation 1 have"):
        run.evolve(CARTPOLE, 1)


EVERYTHING = spaces.Tuple(
    (
        spaces.Discrete(3, start=5),
        spaces.Dict({"push": spaces.Box(-2.0, 4.0, (2,)), "on": spaces.Discrete(2)}),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(2),
    )
)


class Puzzle(gymnasium.Env):
    """Rewards the action that the observation, of all kinds of spaces, names."""

    observation_space = EVERYTHING
    action_space = EVERYTHING

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: object) -> tuple[object, float, bool, bool, dict[str, object]]:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), float(action[0] - 5), False, False, {}  # pyright: ignore[reportIndexIssue]


@pytest.fixture(scope="module")
def puzzle() -> str:
    gymnasium.register("Puzzle-v0", entry_point=Puzzle, max_episode_steps=5)  # pyright: ignore[reportArgumentType]
    return "Puzzle-v0"


def test_tuples_dictionaries_and_several_choices_are_observed_and_chosen(puzzle: str) -> None:
    problem = Gym(id=puzzle)
    assert problem.widths == (3 + 2 + 2 + 5 + 2, 3 + (1 + 2) + 5 + 2)
    run = population(problem, 4)
    scores = np.asarray(problem.score_all(run.ask()))
    assert ((scores >= 0) & (scores <= 10)).all()
    outputs = np.array([[0.1, 0.9, 0.2, -1.0, 0.0, 1.0, 0.3, 0.2, 0.0, 0.1, 0.2, 1.0, -1.0]])
    ((chosen, part, several, binary),) = actions_of(EVERYTHING, outputs)
    assert (chosen, part["on"]) == (6, 0)  # Gymnasium sorts the parts of dictionaries: on, push
    np.testing.assert_allclose(part["push"], [1.0, 4.0])
    assert (several.tolist(), binary.tolist()) == ([0, 2], [1, 0])


def test_what_has_no_fixed_size_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no fixed length") as caught:
        input_width("Talk-v0", spaces.Sequence(spaces.Discrete(2)))
    assert "tuples" in str(caught.value.hint)
    with pytest.raises(UnsupportedError, match="cannot be chosen"):
        output_widths("Talk-v0", spaces.Tuple((spaces.Discrete(2), spaces.Text(5))))


def grids(network: Network, size: int = 4) -> GridPopulation:
    return GridPopulation(GridConfig(population=size), network, seed=1)


def test_grids_play_as_genomes_do() -> None:
    """The same weights in both forms score the same, with and without memory; a grid that fails is scored alone."""
    run = population(CARTPOLE, 6)
    cohort = run.ask()
    wanted = np.asarray(dataclasses.replace(CARTPOLE, compiled=False).score_all(cohort))
    members = tuple(GridGenome.first(*cohort.genome(row).to_network()) for row in range(6))
    scored = CARTPOLE.score_all(dataclasses.replace(cohort, pool=GridPool(members)))
    np.testing.assert_array_equal(scored, wanted)
    broken = {
        key: WeightStore.from_array(np.full(store.shape, np.nan, np.float32))
        for key, store in members[2].params.items()
    }
    mixed = (*members[:2], dataclasses.replace(members[2], params=Params(broken)), *members[3:])
    scored = np.asarray(CARTPOLE.score_all(dataclasses.replace(cohort, pool=GridPool(mixed))))
    assert np.flatnonzero(np.isnan(scored)).tolist() == [2]
    np.testing.assert_array_equal(np.delete(scored, 2), np.delete(wanted, 2))


def test_grids_with_memory_begin_every_episode_anew() -> None:
    run = grids(sequential(4, 2, hidden=(3,)))
    problem = dataclasses.replace(CARTPOLE, episodes=2, trials=3, goal=1.0)
    champion = run.evolve(problem, 2)
    assert run.config.fitness_threshold == 1.0
    assert problem.confirm(champion.genome) >= 8
    cells = Network(
        grid=Grid(2),
        layers={Coord(0): GRU(input_size=4, hidden_size=3), Coord(1): Dense(in_features=3, out_features=1)},
        input_shape=(4,),
        input_dtype="float32",
    )
    cohort = grids(cells).ask()
    np.testing.assert_array_equal(problem.score_all(cohort), problem.score_all(cohort))
    with pytest.raises(SpecError, match="have 4 numbers"):
        problem.score_all(grids(sequential(3, 1)).ask())


def test_a_job_lets_grids_play() -> None:
    job = job_from(
        {"algorithm": "grid", "population": 4, "problem": {"kind": "gym", "id": "Acrobot-v1", "max_steps": 10}}
    )
    problem = open_problem(job)
    run = open_run(job, problem)
    assert isinstance(run, GridPopulation)
    assert run.pool.genome(0).network.input_shape == (6,)
    assert run.evolve(problem, 1).fitness == -10
