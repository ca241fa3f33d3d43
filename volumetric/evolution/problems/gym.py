"""Any environment of Gymnasium as a problem: all genomes of a generation act side by side, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import SpecError, UnsupportedError
from volumetric.evolution.config import EvolutionConfig
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.genome import Genome
from volumetric.evolution.linked import LinkedPool
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems.demands import Demands
from volumetric.evolution.problems.worlds import ArrayWorlds, Worlds, open_worlds, output_widths
from volumetric.rng import generator

if TYPE_CHECKING:
    from gymnasium import Env, Space

F64Array = NDArray[np.float64]
_EPISODE_STREAM = 2
_COMPILED = "CartPole-v1"
_TRIAL_SEED = 1 << 40
"""Seeds of trial episodes lie above those that training draws."""


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise UnsupportedError(
            "this problem needs gymnasium, which is not installed", hint="pip install 'volumetric-engine[rl]'"
        ) from None
    return gymnasium


@dataclass(frozen=True, slots=True, kw_only=True)
class Gym:
    """Fitness is the mean total reward of an episode.

    All genomes of a generation play the same episodes, which begin from seeds of their own generation: a genome that
    was lucky is asked again in the next one. The result depends neither on other genomes nor on how many there are.

    A genome has one input for each number of the observation (a discrete one is one-hot). Actions: of two discrete ones
    the second where the one output is above 0; of more, or where there are two outputs, that of the largest output;
    continuous ones are outputs in -1 … 1 stretched over the range.

    Attributes
    ----------
    id : name of the environment, as ``"CartPole-v1"``
    episodes : episodes of each genome in a generation
    trials : episodes that a genome must master before the problem counts as solved
    goal : mean reward that solves it; None: what the environment is registered with
    max_steps : end of an episode; None: the environment's
    compiled : play ``CartPole-v1`` by a compiled copy of its equations, which begins as Gymnasium does and is some ten
        times as fast; False asks Gymnasium for every step
    arguments : further arguments of ``gymnasium.make``

    Raises
    ------
    SpecError : a number is below 1, an argument is unknown, or nothing says where an episode ends
    UnsupportedError : gymnasium or the environment is missing, or its spaces are neither boxes nor discrete
    """

    separable: ClassVar[bool] = True

    id: str
    episodes: int = 1
    trials: int = 100
    goal: float | None = None
    max_steps: int | None = None
    compiled: bool = True
    arguments: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers and that the environment can be made."""
        if min(self.episodes, self.trials) < 1 or (self.max_steps is not None and self.max_steps < 1):
            raise SpecError(f"{self.id}: episodes, trials and max_steps must be at least 1")
        self.widths  # noqa: B018  (raises where the spaces do not fit)
        if self.steps is None:
            raise SpecError(f"{self.id} does not say how long an episode may be", hint="give max_steps")

    @property
    def steps(self) -> int | None:
        """Steps of an episode, at most."""
        return self.max_steps or self._spec().max_episode_steps

    @property
    def threshold(self) -> float | None:
        """Mean reward from which on the problem is solved."""
        return self._spec().reward_threshold if self.goal is None else self.goal

    @property
    def widths(self) -> tuple[int, int]:
        """Inputs and outputs of a genome."""
        inputs, outputs = self._all_widths()
        return inputs, outputs[0]

    def make(self) -> Env[Any, Any]:
        """Return one environment."""
        gymnasium = _gymnasium()
        try:
            return gymnasium.make(self.id, disable_env_checker=True, **dict(self.arguments))
        except TypeError as error:
            raise SpecError(f"{self.id}: {error}") from None
        except gymnasium.error.Error as error:
            raise UnsupportedError(
                f"{self.id}: {error}", hint="gymnasium.pprint_registry() lists what there is"
            ) from None

    def configure(self, config: EvolutionConfig) -> EvolutionConfig:
        """Return `config` with what it leaves open: widths, fitness threshold, and activations, which are tanh.

        Raises
        ------
        SpecError : it names other widths, or looks for little fitness
        """
        inputs, outputs = self._all_widths()
        return Demands(
            problem=self.id,
            inputs=inputs,
            outputs=outputs,
            goal=self.threshold,
            activation="tanh",
            output_activation="tanh",
        ).met_by(config)

    def score_all(self, cohort: Cohort) -> F64Array:
        """Return the mean reward of every genome over the episodes of its generation."""
        if not isinstance(cohort.pool, Pool):
            raise SpecError(f"{self.id} is played by genomes of nodes and connections")
        seeds = generator(cohort.seed, _EPISODE_STREAM, cohort.generation).integers(1 << 31, size=self.episodes)
        return self._play(cohort.pool, seeds.tolist())

    def confirm(self, genome: Genome) -> float:
        """Return the mean reward of one genome over `trials` episodes that no training sees."""
        pool = Pool.of([genome] * self.trials)
        return float(self._play(pool, [_TRIAL_SEED], apart=True).mean())

    def _all_widths(self) -> tuple[int, tuple[int, ...]]:
        """Inputs of a genome, and how many outputs it may have."""
        environment = self.make()
        try:
            return _observed(self.id, environment.observation_space), output_widths(self.id, environment.action_space)
        finally:
            environment.close()

    def _spec(self) -> Any:
        gymnasium = _gymnasium()
        try:
            return gymnasium.spec(self.id)
        except gymnasium.error.Error as error:
            raise UnsupportedError(
                f"{self.id}: {error}", hint="gymnasium.pprint_registry() lists what there is"
            ) from None

    def _play(self, pool: Pool, seeds: list[int], *, apart: bool = False) -> F64Array:
        """Total reward of each genome, the mean over `seeds`; `apart` gives each genome an episode of its own."""
        total, linked = np.zeros(len(pool)), LinkedPool(pool)
        worlds = open_worlds(self, len(pool))
        try:
            for seed in seeds:
                starts = [seed + i * apart for i in range(len(pool))]
                if self.compiled and isinstance(worlds, ArrayWorlds) and self.id == _COMPILED:
                    total += linked.play_cartpole(worlds.bodies(starts), self.steps or 0)
                else:
                    total += self._episode(linked, worlds, starts)
        finally:
            worlds.close()
        return total / len(seeds)

    def _episode(self, linked: LinkedPool, worlds: Worlds, seeds: list[int]) -> F64Array:
        observed = worlds.reset(seeds)
        total, alive = np.zeros(len(observed)), np.ones(len(observed), np.bool_)
        state = linked.new_state() if linked.pool.interface.recurrent else None
        outputs = np.zeros((len(observed), 1, linked.pool.interface.outputs))
        rows = np.arange(len(observed))
        for _ in range(self.steps or 0):
            linked.activate(observed[:, None, :], state, rows=rows, out=outputs)
            observed, reward, ended = worlds.step(outputs[:, 0], alive)
            total[rows] += reward[rows]
            if ended[rows].any():
                alive &= ~ended
                rows = np.flatnonzero(alive)
                if len(rows) == 0:
                    break
        return total


def _observed(name: str, space: Space[Any]) -> int:
    """Inputs that an observation needs."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape))
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    raise UnsupportedError(f"{name}: observations {space} are neither a box nor discrete")
