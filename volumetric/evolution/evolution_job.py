"""A run described by a TOML file: every key has a default; an unknown key raises an error with a suggestion."""

from __future__ import annotations

import dataclasses
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from volumetric.base import config_tables
from volumetric.base.errors import SpecError
from volumetric.base.import_by_name import import_beside, import_function
from volumetric.builders import BUILDERS
from volumetric.evolution.evaluate import Problem, configured, takes_random
from volumetric.evolution.evolution_config import EvolutionConfig
from volumetric.evolution.grids.grid_config import GridConfig
from volumetric.evolution.grids.grid_population import GridPopulation
from volumetric.evolution.loop import Budget
from volumetric.evolution.novelty import NoveltyConfig
from volumetric.evolution.nsga import SizedProblem
from volumetric.evolution.population import Population
from volumetric.evolution.problems import PROBLEMS, Gym, NoveltySearch, function, parity, xor
from volumetric.evolution.problems.sample_problem import SampleProblem, as_table
from volumetric.loaders.network_file import read_network_file
from volumetric.network import Network
from volumetric.network.grid import Grid
from volumetric.train import problems as learning
from volumetric.train.settings import DataSettings, NetworkSettings, RunSettings
from volumetric.train.sources import open_samples

Algorithm = Literal["classic", "grid", "elites"]
Search = Literal["fitness", "novelty", "nsga2"]
MAX_WORKERS: Final = 1024
_OF_TRAIN: Final = {"train", "data", "clocked", "history", "observe", "resume", "epochs", "loss", "optimiser"}
"""Keys of files for ``train``."""
_HOMES = ("builder", "file", "options")
FUNCTIONS: Final = MappingProxyType[str, Callable[[Any], Any]](
    {
        "square": np.square,
        "sin": lambda x: np.sin(np.pi * x),
        "abs": np.abs,
        "exp": np.exp,
        "step": lambda x: 1.0 * (x > 0),
    }
)
"""Name → target of the problem ``function``; "sin" is sin(πx)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNames:
    """Names of inputs and outputs in pictures; empty: their numbers."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionJob:
    """All settings of a run.

    Attributes
    ----------
    name, home : name of the run, and base directory of relative paths
    algorithm : "classic": NEAT over nodes and connections. "grid": NEAT over grids of layers. "elites": grids, of which
        the best quarter survives and breeds
    seed : of all random numbers
    generations : number of generations of the whole run
    output : output directory, relative to the working directory; empty: the name of the run
    device : device of problems that activate all genomes of nodes and connections together, see `Run.evolve`
    workers : processes that evaluate; 0: only this process
    timeout : time limit of a genome in seconds, 0: none; needs workers
    checkpoint_every : generations between checkpoints
    tensorboard : also write event files to the directory ``tensorboard``
    genealogy : also write parents, species, fitness and size of every genome, and the structure of the best, to the
        history, for pages of the scope
    reporters : names of reporters, or tables with a name under ``kind`` and options; see `base.reporting.reporter`
    room : free slots in each cell of a grid, where layers can be added
    problem : a name, or a table with the name under ``kind`` and options
    fitness : in place of a problem, ``"module:function"`` next to the file: a fitness function, or a problem
    search : "fitness" rewards the fitness of a problem; "novelty" rewards new behaviour, see `novelty`; "nsga2" has
        several objectives: those of a fitness function, or a problem's fitness and minus the genome's size
    novelty : section of `NoveltyConfig`, and ``behave``: ``"module:function"`` from a cohort to [genomes, features]
    names : of ``inputs`` and ``outputs``, for pictures of genomes
    network : for grids: builder or file, with options
    budget : see `Budget`
    config : population, species, reproduction, mutation, …
    """

    name: str = "run"
    home: Path = Path()
    algorithm: Algorithm = "classic"
    seed: int = 0
    generations: int = 150
    output: str = ""
    device: str = "auto"
    workers: int = 0
    timeout: float = 0.0
    checkpoint_every: int = 1
    tensorboard: bool = False
    genealogy: bool = False
    reporters: tuple[Any, ...] = ()
    room: int = 2
    problem: Any = "xor"
    fitness: str = ""
    search: Search = "fitness"
    novelty: Mapping[str, Any] = field(default_factory=dict)
    names: NodeNames = field(default_factory=NodeNames)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    budget: Budget = field(default_factory=Budget)
    config: EvolutionConfig | GridConfig = field(default_factory=EvolutionConfig)

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("generations", 1), ("checkpoint_every", 1), ("workers", 0), ("seed", 0), ("room", 0)):
            if getattr(self, name) < least:
                raise SpecError(
                    f"{name} must be at least {least}, got {getattr(self, name)}",
                    hint=f"leave it out for the default, {type(self).__dataclass_fields__[name].default}",
                )
        if self.workers > MAX_WORKERS:
            raise SpecError(
                f"workers must be at most {MAX_WORKERS}, got {self.workers}",
                hint="use at most one process for each core",
            )
        if self.timeout < 0 or (self.timeout and not self.workers):
            raise SpecError(f"timeout {self.timeout}: a genome that hangs can only be stopped in another process",
                            hint="set workers = 1 or more")  # fmt: skip

    @property
    def directory(self) -> Path:
        """Output directory of the run."""
        return Path(self.output or self.name).expanduser()


_SCALARS: Final = (
    "algorithm",
    "seed",
    "generations",
    "output",
    "device",
    "workers",
    "timeout",
    "checkpoint_every",
    "tensorboard",
    "genealogy",
    "reporters",
    "room",
    "fitness",
    "search",
)


def read_job(path: Path, changes: Mapping[str, Any] | None = None) -> EvolutionJob:
    """Read a configuration file.

    Parameters
    ----------
    changes : entries by dotted names, as ``"species.target"``, that override the file

    Raises
    ------
    SpecError : the file is not TOML, or has an unknown, ill-typed or invalid entry, which the message names
    """
    return config_tables.read_toml(path, changes, lambda table, name, home: job_from(table, name=name, home=home))


def place_of(key: str) -> str | None:
    """Return the dotted name of a key in a file for ``evolve``, as "species.target"; None if unknown."""
    rules = [(kind, name) for kind in (EvolutionConfig, GridConfig) for name in config_tables.argument_types(kind)]
    if key in (*_SCALARS, *(name for _, name in rules)):
        return key
    return next((f"{name}.{key}" for kind, name in rules if key in _keys_of(kind, name)), None)


def job_from(table: Mapping[str, Any], *, name: str = "run", home: Path | None = None) -> EvolutionJob:
    """Create a job from the tables of a TOML file. Raises `SpecError` as `read_job` does."""
    types = config_tables.argument_types(EvolutionJob)
    algorithm = config_tables.checked_value(table.get("algorithm", "classic"), Algorithm, "algorithm")
    kind = EvolutionConfig if algorithm == "classic" else GridConfig
    rules = [key for key in config_tables.argument_types(kind) if key != "algorithm"]
    sections = ("problem", "budget", "novelty", "names", *(() if algorithm == "classic" else ("network",)))
    allowed = (*_SCALARS, *sections, *rules)

    def elsewhere(key: str) -> str | None:
        if key in _OF_TRAIN or (key == "network" and not _OF_TRAIN.isdisjoint(table)):
            return "this key belongs to training: volumetric train FILE"
        if key == "network":
            return 'use algorithm = "grid" to start from a network'
        section = next((name for name in rules if key in _keys_of(kind, name)), None)
        return None if section is None else f"write it in [{section}]: {section}.{key}"

    entries = config_tables.expect_keys(dict(table), allowed, "configuration", elsewhere=elsewhere)
    values: dict[str, Any] = {
        key: config_tables.checked_value(entries[key], types[key], key) for key in _SCALARS if key in entries
    }
    if algorithm == "classic" and "room" in entries:
        raise SpecError(
            "room needs layers, and classic genomes have no layers", hint='remove it, or set algorithm = "grid"'
        )
    network = config_tables.expect_keys(entries.get("network", {}), _HOMES, "[network]")
    _check_goal(values, entries)
    config = kind.from_dict({key: entries[key] for key in rules if key in entries})
    if algorithm == "elites" and isinstance(config, GridConfig):
        config = dataclasses.replace(config, algorithm="elites")
    return EvolutionJob(
        name=name,
        home=home or Path(),
        **values,
        problem=entries.get("problem", "xor"),
        novelty=config_tables.expect_keys(
            entries.get("novelty", {}), ("behave", *config_tables.argument_types(NoveltyConfig)), "[novelty]"
        ),
        network=config_tables.call_with_table(NetworkSettings, network, "[network]"),
        names=config_tables.call_with_table(NodeNames, entries.get("names", {}), "[names]"),
        budget=config_tables.call_with_table(Budget, entries.get("budget", {}), "[budget]"),
        config=config,
    )


def _keys_of(config: type, section: str) -> Iterable[str]:
    """Return the keys of a section of a configuration; none if it is a number."""
    of: Any = config_tables.argument_types(config)[section]
    return config_tables.argument_types(of) if isinstance(of, type) and dataclasses.is_dataclass(of) else ()


def _check_goal(values: Mapping[str, Any], entries: Mapping[str, Any]) -> None:
    """Raise `SpecError` for settings with several goals."""
    goals = [key for key in ("fitness", "problem") if entries.get(key)]
    if values.get("search") == "novelty" and goals:
        raise SpecError(
            f"novelty search rewards behaviour and does not use {goals[0]}", hint=f"remove {goals[0]}, or search"
        )
    if values.get("search") != "novelty" and "novelty" in entries:
        raise SpecError("[novelty] is not used", hint='set search = "novelty", or remove the section')
    if len(goals) > 1:
        raise SpecError("fitness and problem exclude each other", hint="remove fitness or problem")


def open_problem(job: EvolutionJob) -> Problem | Callable[..., Any]:
    """Return the problem or the fitness function of a job.

    Raises
    ------
    SpecError : it is unknown, cannot be imported, or has an invalid option
    UnsupportedError : it needs a library that is not installed
    """
    if job.search == "novelty":
        return _novelty(job)
    if job.fitness:
        fitness_function = import_function(job.fitness, job.home)
        if not isinstance(fitness_function, Problem):
            takes_random(fitness_function)
        return fitness_function
    known = _classic(job) if job.algorithm == "classic" else _samples(job)
    problem = config_tables.build_from_registry(ChainMap(known, PROBLEMS), job.problem, "[problem]")
    return SizedProblem(problem) if job.search == "nsga2" else problem


def open_run(job: EvolutionJob, problem: Any) -> Population | GridPopulation:
    """Return the first generation of a job; the problem completes the configuration.

    Raises
    ------
    SpecError : configuration and problem contradict each other, or the network does not fit the problem
    """
    config = configured(problem, job.config)
    if isinstance(config, GridConfig):
        return GridPopulation(config, _first_network(job, problem), seed=job.seed)
    return Population(config, job.seed)


def load_run(job: EvolutionJob, path: Path) -> Population | GridPopulation:
    """Return the run of a checkpoint."""
    return Population.load(path) if job.algorithm == "classic" else GridPopulation.load(path)


def _novelty(job: EvolutionJob) -> NoveltySearch:
    options = dict(job.novelty)
    behave = config_tables.checked_value(options.pop("behave", ""), str, "[novelty] behave")
    if not behave:
        raise SpecError(
            "[novelty] behave is missing",
            hint='set [novelty] behave = "module:function": from a cohort to a row of numbers for each genome',
        )
    return NoveltySearch(
        import_function(behave, job.home, "behave"),
        config_tables.call_with_table(NoveltyConfig, options, "[novelty]"),
        job.seed,
    )


def _classic(job: EvolutionJob) -> dict[str, Callable[..., Problem]]:
    def fit(name: str, low: float = -1.0, high: float = 1.0, points: int = 32) -> Problem:
        if name not in FUNCTIONS:
            raise SpecError(f"unknown function {name!r}", hint="one of " + ", ".join(FUNCTIONS))
        return function(FUNCTIONS[name], low, high, points)

    def table(
        *, npz: str = "", csv: str = "", inputs: str = "inputs", targets: str = "targets",
        columns: tuple[str, ...] = (), classes: bool = False, header: bool | None = None,
    ) -> Problem:  # fmt: skip
        settings: dict[str, Any] = {"columns": columns, "classes": classes, "header": header}
        return as_table(_read(job, npz=npz, csv=csv, inputs=inputs, targets=targets, **settings))

    def digits() -> Problem:
        return as_table(learning.digits())

    def bits_parity(bits: int = 3) -> Problem:
        return parity(bits)

    return {
        "xor": xor, "parity": bits_parity, "function": fit, "table": table, "gym": _gym_of(job), "digits": digits,
    }  # fmt: skip


def _samples(job: EvolutionJob) -> dict[str, Callable[..., Problem]]:
    def table(
        *, npz: str = "", csv: str = "", inputs: str = "inputs", targets: str = "targets",
        columns: tuple[str, ...] = (), classes: bool = False, header: bool | None = None,
        options: dict[str, Any] | None = None,
    ) -> Problem:  # fmt: skip
        settings: dict[str, Any] = {"columns": columns, "classes": classes, "header": header}
        read_problem = _read(job, npz=npz, csv=csv, inputs=inputs, targets=targets, **settings)
        return config_tables.call_with_table(SampleProblem, options or {}, "[problem] options", learning=read_problem)

    def named(make: Callable[..., learning.Problem]) -> Callable[..., Problem]:
        def problem(options: dict[str, Any] | None = None, make_options: dict[str, Any] | None = None) -> Problem:
            built_problem = config_tables.call_with_table(make, make_options or {}, "[problem] make_options")
            return config_tables.call_with_table(
                SampleProblem, options or {}, "[problem] options", learning=built_problem
            )

        return problem

    return {**{name: named(make) for name, make in learning.PROBLEMS.items()}, "table": table, "gym": _gym_of(job)}


def _gym_of(job: EvolutionJob) -> Callable[..., Problem]:
    """Return the problem of an environment; custom modules may be next to the configuration."""

    @wraps(_gym)
    def make(id: str, **options: Any) -> Problem:
        module = id.rpartition(":")[0]
        if module:
            import_beside(module, job.home, f'[problem] id = "{id}"')
        return _gym(id, **options)

    return make


def _gym(
    id: str, *, episodes: int = 1, trials: int = 100, goal: float | None = None, max_steps: int | None = None,
    compiled: bool = True, arguments: dict[str, Any] | None = None,
) -> Problem:  # fmt: skip
    return Gym(
        id=id, episodes=episodes, trials=trials, goal=goal, max_steps=max_steps, compiled=compiled,
        arguments=tuple((arguments or {}).items()),
    )  # fmt: skip


def _read(job: EvolutionJob, **settings: Any) -> learning.Problem:
    if not settings["npz"] and not settings["csv"]:
        raise SpecError(
            "[problem] table: no npz or csv", hint='set a file: { kind = "table", csv = "points.csv" }, or npz'
        )
    return open_samples(RunSettings(home=job.home, data=DataSettings(**settings))).problem


def _first_network(job: EvolutionJob, problem: Any) -> Network:
    """Return the initial structure of grids, with free slots."""
    problem = problem.problem if isinstance(problem, SizedProblem) else problem
    settings = job.network
    if settings.file:
        network, _ = read_network_file(job.home / settings.file)
    else:
        known: dict[str, Any] = {}
        if isinstance(problem, SampleProblem):
            samples = problem.learning
            width = int(np.prod(samples.inputs.shape[2 if problem.of_steps else 1 :]))
            known = {"inputs": width, "width": width, "outputs": samples.outputs}
            known |= {"shape": samples.shape} if samples.shape else {}
        if isinstance(problem, Gym):
            inputs, outputs = problem.widths
            known = {"inputs": inputs, "width": inputs, "outputs": outputs}
        name = settings.builder or "sequential"
        network = config_tables.build_from_registry(
            BUILDERS, {"kind": name, **settings.options}, "[network] builder", **known
        )
    grid = network.grid
    roomy = dataclasses.replace(network, grid=Grid(grid.depth, grid.rows, grid.cols, grid.slots + job.room))
    if isinstance(problem, SampleProblem):
        problem.shaped(roomy)
    return roomy
