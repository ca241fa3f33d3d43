"""Any environment of Gymnasium as a problem: all genomes of a generation act side by side, step by step."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import SpecError, UnsupportedError, VolumetricError
from volumetric.base.keywords import explained
from volumetric.base.rng import generator
from volumetric.evolution.config import EvolutionConfig, RunConfig
from volumetric.evolution.evaluate import Cohort, Genomes
from volumetric.evolution.genome import Genome
from volumetric.evolution.grids.genome import GridGenome, GridPool
from volumetric.evolution.linked import LinkedPool
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems.demands import Demands, with_goal
from volumetric.evolution.problems.worlds import ArrayWorlds, Worlds, input_width, open_worlds, output_widths
from volumetric.network import OUTPUT
from volumetric.train.imported import import_beside

if TYPE_CHECKING:
    from gymnasium import Env

F64Array = NDArray[np.float64]
C = TypeVar("C", bound=RunConfig)
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


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Gym:
    """Fitness is the mean total reward of an episode.

    All genomes of a generation play the same episodes, which begin from seeds of their own generation: a genome that
    was lucky is asked again in the next one. The result depends neither on other genomes nor on how many there are.

    A genome has one input for each number of the observation: discrete ones are one-hot, parts of tuples and
    dictionaries follow each other. Its outputs choose actions as `volumetric.evolution.problems.worlds.actions_of`
    says. Grids play, too, one by one; their networks keep their state within an episode.

    Attributes
    ----------
    id : name of the environment, as ``"CartPole-v1"``; or ``"module:name"``, as ``"myenv:Chase-v0"``, for one that a
        module registers when it is imported: from beside the configuration, the current directory, or what is installed
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
    UnsupportedError : gymnasium or the environment is missing, or its spaces are not of a fixed number of numbers
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
            raise SpecError(
                f"{self.id} does not say how long an episode may be",
                hint="give max_steps, or register it with max_episode_steps",
            )

    @property
    def name(self) -> str:
        """What gymnasium calls the environment."""
        return self.id.rpartition(":")[2]

    @property
    def steps(self) -> int | None:
        """Steps of an episode, at most."""
        return self.max_steps or self.spec().max_episode_steps

    @property
    def threshold(self) -> float | None:
        """Mean reward from which on the problem is solved."""
        return self.spec().reward_threshold if self.goal is None else self.goal

    @property
    def widths(self) -> tuple[int, int]:
        """Inputs and outputs of a genome."""
        inputs, outputs = self._all_widths()
        return inputs, outputs[0]

    def make(self) -> Env[Any, Any]:
        """Return one environment."""
        gymnasium = self._registered()
        try:
            return gymnasium.make(self.name, disable_env_checker=True, **dict(self.arguments))
        except TypeError as error:
            raise SpecError(f"{self.id}: {error}", hint="arguments are those of the environment's __init__") from None
        except gymnasium.error.Error as error:
            raise self._unknown(error) from None

    def configure(self, config: C) -> C:
        """Return `config` with what it leaves open: fitness threshold, widths, and activations, which are tanh.

        Of a configuration of grids it is the threshold alone: their network has its widths.

        Raises
        ------
        SpecError : it names other widths, or looks for little fitness
        """
        if not isinstance(config, EvolutionConfig):
            return with_goal(config, self.id, self.threshold)
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
        seeds = generator(cohort.seed, _EPISODE_STREAM, cohort.generation).integers(1 << 31, size=self.episodes)
        return self._play(cohort.pool, seeds.tolist())

    def confirm(self, genome: Genome | GridGenome) -> float:
        """Return the mean reward of one genome over `trials` episodes that no training sees."""
        pool: Genomes
        if isinstance(genome, GridGenome):
            pool = GridPool((genome,) * self.trials)
        else:
            pool = Pool.of([genome] * self.trials)
        return float(self._play(pool, [_TRIAL_SEED], apart=True).mean())

    def _all_widths(self) -> tuple[int, tuple[int, ...]]:
        """Inputs of a genome, and how many outputs it may have."""
        environment = self.make()
        try:
            return input_width(self.id, environment.observation_space), output_widths(self.id, environment.action_space)
        finally:
            environment.close()

    def spec(self) -> Any:
        """What the environment is registered with."""
        gymnasium = self._registered()
        try:
            return gymnasium.spec(self.name)
        except gymnasium.error.Error as error:
            raise self._unknown(error) from None

    def _registered(self) -> Any:
        """Return gymnasium, which knows the environment once its module is imported, in a worker process too."""
        gymnasium, module = _gymnasium(), self.id.rpartition(":")[0]
        if module and module not in sys.modules:
            import_beside(module, Path(), f"{self.id}")
        return gymnasium

    def _unknown(self, error: Exception) -> UnsupportedError:
        module = self.id.rpartition(":")[0]
        hint = f'{module} must call gymnasium.register(id="{self.name}", entry_point=…) when it is imported'
        return UnsupportedError(
            f"{self.id}: {error}",
            hint=hint if module else 'gymnasium.pprint_registry() lists what there is; your own: id = "module:Name-v0"',
        )

    def _play(self, pool: Genomes, seeds: list[int], *, apart: bool = False) -> F64Array:
        """Total reward of each genome, the mean over `seeds`; `apart` gives each genome an episode of its own."""
        total, players = np.zeros(len(pool)), players_of(pool, self)
        worlds = open_worlds(self, len(pool))
        try:
            for seed in seeds:
                starts = [seed + i * apart for i in range(len(pool))]
                if self.compiled and isinstance(worlds, ArrayWorlds) and self.id == _COMPILED and players.linked:
                    total += players.linked.play_cartpole(worlds.bodies(starts), self.steps or 0)
                else:
                    total += self._episode(players, worlds, starts)
        finally:
            worlds.close()
        return total / len(seeds)

    def _episode(self, players: Players, worlds: Worlds, seeds: list[int]) -> F64Array:
        observed = worlds.reset(seeds)
        total, alive = np.zeros(len(observed)), np.ones(len(observed), np.bool_)
        players.begin()
        rows = np.arange(len(observed))
        for _ in range(self.steps or 0):
            outputs = players.act(observed, rows)
            failed = rows[np.isnan(outputs[rows]).any(axis=1)]
            if len(failed):
                total[failed], alive[failed], outputs[failed] = np.nan, False, 0.0
            observed, reward, ended = worlds.step(outputs, alive)
            ended |= ~alive
            total[rows] += reward[rows]
            if ended[rows].any():
                alive &= ~ended
                rows = np.flatnonzero(alive)
                if len(rows) == 0:
                    break
        return total


IntArray = NDArray[np.int64]


class Players(Protocol):
    """Genomes that act in worlds of their own."""

    @property
    def linked(self) -> LinkedPool | None:
        """The genomes, if they are of nodes and connections."""
        ...

    def begin(self) -> None:
        """Forget the last episode."""
        ...

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``.

        Those of other genomes than `rows` mean nothing; a genome that fails puts out NaN.
        """
        ...


def players_of(pool: Genomes, problem: Gym) -> Players:
    """Return the genomes of a generation ready to play an environment.

    Raises
    ------
    SpecError : grids read something else, or these are genomes of another kind
    """
    if isinstance(pool, Pool):
        return LinkedPlayers(pool)
    if isinstance(pool, GridPool):
        shape, inputs = pool.genome(0).network.input_shape, problem.widths[0]
        if int(np.prod(shape)) != inputs:
            raise SpecError(
                f"the networks read {list(shape)}, observations of {problem.id} have {inputs} numbers",
                hint=f"let [network] make one with {inputs} inputs",
            )
        return GridPlayers(pool)
    raise SpecError(f"{problem.id} is played by genomes of nodes and connections, or by grids")


class LinkedPlayers:
    """Genomes of nodes and connections, which act together in one compiled call."""

    def __init__(self, pool: Pool) -> None:
        self.linked = LinkedPool(pool)
        self._state: F64Array | None = None
        self._outputs = np.zeros((len(pool), 1, pool.interface.outputs))

    def begin(self) -> None:
        """Forget the last episode."""
        self._state = self.linked.new_state() if self.linked.pool.interface.recurrent else None

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``."""
        self.linked.activate(observed[:, None, :], self._state, rows=rows, out=self._outputs)
        return self._outputs[:, 0]


class GridPlayers:
    """Whole networks, which act one after the other."""

    linked = None

    def __init__(self, pool: GridPool) -> None:
        self._members: tuple[GridGenome, ...] = pool.members
        network = self._members[0].network
        width = math.prod(size for size in network.shapes[network.taps[OUTPUT]] if size > 0)  # rows are not counted
        self._outputs = np.zeros((len(pool), width))
        self._states: list[Any] = []

    def begin(self) -> None:
        """Forget the last episode."""
        self._states = [genome.executable.new_state() for genome in self._members]

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``; NaN where a genome fails."""
        for row in rows.tolist():
            genome = self._members[row]
            x = observed[row].reshape(1, *genome.network.input_shape).astype(np.float32)
            try:
                self._outputs[row] = genome.executable.forward(self._states[row], x, last_only=True).ravel()
            except (VolumetricError, ValueError, FloatingPointError):  # its own failure, whatever layers it has grown
                self._outputs[row] = np.nan
        return self._outputs
