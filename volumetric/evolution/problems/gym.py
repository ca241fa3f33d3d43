"""Gymnasium environments as problems: all genomes of a generation act in parallel, step by step."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError, UnsupportedError, VolumetricError
from volumetric.base.import_by_name import import_beside
from volumetric.base.rng import generator
from volumetric.evolution.evaluate import Cohort, Genomes
from volumetric.evolution.evolution_config import EvolutionConfig, RunConfig
from volumetric.evolution.genome import Genome
from volumetric.evolution.grids.grid_genome import GridGenome, GridPool
from volumetric.evolution.linked_pool import LinkedPool
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems.demands import Demands, with_goal
from volumetric.evolution.problems.worlds import ArrayWorlds, Worlds, input_width, open_worlds, output_widths
from volumetric.network import OUTPUT

if TYPE_CHECKING:
    from gymnasium import Env

F64Array = NDArray[np.float64]
C = TypeVar("C", bound=RunConfig)
_EPISODE_STREAM = 2
_COMPILED = "CartPole-v1"
_STEPS_OF_ENTRY = 1000
_TRIAL_SEED = 1 << 40
"""Seeds of trial episodes are above the seeds of training."""


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise UnsupportedError(
            "this problem needs gymnasium, which is not installed", hint="pip install 'volumetric-engine[rl]'"
        ) from None
    return gymnasium


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Gym:
    """Fitness is the mean total reward of an episode.

    All genomes of a generation play the same episodes, with seeds of that generation, so a lucky genome is tested again
    in the next one. The result depends neither on other genomes nor on their number.

    A genome has one input for each number of the observation: discrete values are one-hot, parts of tuples and
    dictionaries are concatenated. Outputs choose actions, see `volumetric.evolution.problems.worlds.actions_of`. Grids
    also play, one by one; their networks keep their state within an episode.

    Attributes
    ----------
    id : name of the environment, as ``"CartPole-v1"``; or ``"module:name"``, as ``"myenv:Chase-v0"``, for an
        environment that a module registers at import: next to the configuration, in the current directory, or installed
    episodes : episodes of each genome in a generation
    trials : number of episodes whose mean reward must reach the goal before the problem counts as solved
    goal : mean reward that solves it; None: the registered threshold of the environment
    max_steps : maximum steps of an episode; None: the environment's limit
    compiled : play ``CartPole-v1`` by a compiled copy of its equations, which starts as Gymnasium does and is some ten
        times as fast; False uses Gymnasium for every step
    arguments : further arguments of ``gymnasium.make``
    entry : class of an environment, or a function that returns a new one, in place of a registered `id`; `arguments`
        are then its own. Without another limit its episodes end after 1,000 steps. To be played in other processes, it
        must be at the top level of a module

    Raises
    ------
    SpecError : a number is below 1, an argument is unknown, or episodes have no limit
    UnsupportedError : gymnasium or the environment is missing, or its spaces do not have a fixed size
    """

    separable: ClassVar[bool] = True

    id: str = ""
    episodes: int = 1
    trials: int = 100
    goal: float | None = None
    max_steps: int | None = None
    compiled: bool = True
    arguments: tuple[tuple[str, Any], ...] = ()
    entry: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Check the numbers and that the environment can be created."""
        if not self.id:
            if self.entry is None:
                raise SpecError("Gym needs an environment", hint='Gym(id="CartPole-v1") or Gym(entry=Chase)')
            object.__setattr__(self, "id", getattr(self.entry, "__name__", "environment"))
        if min(self.episodes, self.trials) < 1 or (self.max_steps is not None and self.max_steps < 1):
            raise SpecError(f"{self.id}: episodes, trials and max_steps must be at least 1")
        self.widths  # noqa: B018  (raises where the spaces do not fit)
        if self.steps is None:
            raise SpecError(
                f"{self.id} has no limit on the steps of an episode",
                hint="set max_steps, or register it with max_episode_steps",
            )

    @property
    def name(self) -> str:
        """Name of the environment in gymnasium."""
        return self.id.rpartition(":")[2]

    @property
    def steps(self) -> int | None:
        """Maximum steps of an episode."""
        spec = self.spec()
        limit = None if spec is None else spec.max_episode_steps
        return self.max_steps or limit or (None if self.entry is None else _STEPS_OF_ENTRY)

    @property
    def threshold(self) -> float | None:
        """Mean reward that solves the problem."""
        spec = self.spec()
        return self.goal if self.goal is not None or spec is None else spec.reward_threshold

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of inputs and outputs of a genome."""
        inputs, outputs = self._all_widths()
        return inputs, outputs[0]

    def make(self) -> Env[Any, Any]:
        """Return one environment."""
        if self.entry is not None:
            return self._of_entry(self.entry)
        gymnasium = self._registered()
        try:
            return gymnasium.make(self.name, disable_env_checker=True, **dict(self.arguments))
        except TypeError as error:
            raise SpecError(f"{self.id}: {error}", hint="pass arguments of the environment's __init__") from None
        except gymnasium.error.Error as error:
            raise self._unknown(error) from None

    def _of_entry(self, entry: Callable[..., Any]) -> Env[Any, Any]:
        _gymnasium()
        try:
            environment = entry(**dict(self.arguments))
        except TypeError as error:
            raise SpecError(f"{self.id}: {error}", hint="pass a class, or a function that returns a new one") from None
        spaces = ("observation_space", "action_space")
        missing = [name for name in ("reset", "step", *spaces) if getattr(environment, name, None) is None]
        if missing:
            raise SpecError(
                f"{self.id} returns no environment of Gymnasium, but {type(environment).__name__}, which has no "
                f"{', '.join(missing)}",
                hint="a fitness function takes a genome; an environment is a class of gymnasium.Env",
            )
        return environment

    def configure(self, config: C) -> C:
        """Return `config` with missing values: fitness threshold, widths, and activations (tanh).

        For grids only the threshold is set: their network has its widths.

        Raises
        ------
        SpecError : it sets other widths, or minimises fitness
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
        """Return the mean reward of one genome over `trials` episodes that are not used in training."""
        pool: Genomes
        if isinstance(genome, GridGenome):
            pool = GridPool((genome,) * self.trials)
        else:
            pool = Pool.of([genome] * self.trials)
        return float(self._play(pool, [_TRIAL_SEED], apart=True).mean())

    def _all_widths(self) -> tuple[int, tuple[int, ...]]:
        """Number of inputs of a genome, and allowed numbers of outputs."""
        environment = self.make()
        try:
            return input_width(self.id, environment.observation_space), output_widths(self.id, environment.action_space)
        finally:
            environment.close()

    def spec(self) -> Any:
        """Registration of the environment; None if it has none."""
        if self.entry is not None:
            environment = self.make()
            try:
                return environment.spec
            finally:
                environment.close()
        gymnasium = self._registered()
        try:
            return gymnasium.spec(self.name)
        except gymnasium.error.Error as error:
            raise self._unknown(error) from None

    def _registered(self) -> Any:
        """Return gymnasium after importing the module that registers the environment, also in worker processes."""
        gymnasium, module = _gymnasium(), self.id.rpartition(":")[0]
        if module and module not in sys.modules:
            import_beside(module, Path(), f"{self.id}")
        return gymnasium

    def _unknown(self, error: Exception) -> UnsupportedError:
        module = self.id.rpartition(":")[0]
        hint = f'{module} must call gymnasium.register(id="{self.name}", entry_point=…) when it is imported'
        if not module and "-v" not in self.id:
            return UnsupportedError(
                f"{self.id}: an environment has a version in its name", hint=f'for example id = "{self.id}-v1"'
            )
        return UnsupportedError(
            f"{self.id}: {error}",
            hint=hint
            if module
            else 'see gymnasium.pprint_registry(); for a custom environment set id = "module:Name-v0"',
        )

    def _play(self, pool: Genomes, seeds: list[int], *, apart: bool = False) -> F64Array:
        """Return the mean total reward of each genome over `seeds`; with `apart` each genome has its own episode."""
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
    """Genomes that act in separate worlds."""

    @property
    def linked(self) -> LinkedPool | None:
        """The genomes, if they are genomes of nodes and connections."""
        ...

    def begin(self) -> None:
        """Forget the last episode."""
        ...

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``.

        Outputs of genomes outside of `rows` are undefined; a genome that fails returns NaN.
        """
        ...


def players_of(pool: Genomes, problem: Gym) -> Players:
    """Return the genomes of a generation ready to play an environment.

    Raises
    ------
    SpecError : grids expect another shape, or the genomes are of another kind
    """
    if isinstance(pool, Pool):
        return LinkedPlayers(pool)
    if isinstance(pool, GridPool):
        shape, inputs = pool.genome(0).network.input_shape, problem.widths[0]
        if int(np.prod(shape)) != inputs:
            raise SpecError(
                f"the networks read {list(shape)}, but observations of {problem.id} have {inputs} numbers",
                hint=f"set [network] to a network with {inputs} inputs",
            )
        return GridPlayers(pool)
    raise SpecError(f"{problem.id} needs genomes of nodes and connections, or grids")


class LinkedPlayers:
    """Genomes of nodes and connections, which act together in one compiled call."""

    def __init__(self, pool: Pool) -> None:
        self.linked: LinkedPool = LinkedPool(pool)
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
        width = math.prod(size for size in network.shapes[network.taps[OUTPUT]] if size > 0)  # without the axis of rows
        self._outputs = np.zeros((len(pool), width))
        self._states: list[Any] = []

    def begin(self) -> None:
        """Forget the last episode."""
        self._states = [genome.executable.new_state() for genome in self._members]

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``; NaN if a genome fails."""
        for row in rows.tolist():
            genome = self._members[row]
            x = observed[row].reshape(1, *genome.network.input_shape).astype(np.float32)
            try:
                self._outputs[row] = genome.executable.forward(self._states[row], x, last_only=True).ravel()
            except (VolumetricError, ValueError, FloatingPointError):  # any error is the failure of this genome
                self._outputs[row] = np.nan
        return self._outputs
