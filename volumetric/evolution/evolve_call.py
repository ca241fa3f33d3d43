"""Evolution in one call: from a fitness function to a champion that predicts and can be saved."""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ArgumentError, SpecError
from volumetric.base.event_series import EventSeries
from volumetric.base.keyword_synonyms import accept_synonyms
from volumetric.base.notebook_cell import stop_button
from volumetric.base.notebook_html import facts_table, image_of, picture_of
from volumetric.base.progress_line import progress_lines
from volumetric.base.reporting import AnyReporter
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.base.sparkline import sparkline, sparkline_svg
from volumetric.devices.named_devices import AnyDevice
from volumetric.evolution.evaluate import Fitness, Problem, Scorer, takes_random
from volumetric.evolution.evolution_config import (
    EvolutionConfig,
    GenomeConfig,
    MutationConfig,
    ReproductionConfig,
    SpeciesConfig,
)
from volumetric.evolution.generation_run import Champion
from volumetric.evolution.genome import Genome
from volumetric.evolution.loop import Budget, Stop
from volumetric.evolution.population import Population
from volumetric.evolution.problems import Gym, Table
from volumetric.evolution.reporters import Evaluated, Event, History

FitnessSource: TypeAlias = (
    "Fitness | Problem | str | Mapping[str, Any] | tuple[ArrayLike, ArrayLike] | Callable[[Any], Any]"
)
"""What `evolve` maximises: a function of a genome, a problem, its name or its table, or inputs and targets."""
_ENVIRONMENT: Final = re.compile(r"(?:\w+:|\w+/)?[\w-]+-v\d+")
"""Names of Gymnasium's environments, such as ``"CartPole-v1"``."""
_ANSWERS: Final[Mapping[str, str]] = {
    "config_file": "settings are keywords, as population=150, or EvolutionConfig.load(path) of a TOML file",
    "config_path": "settings are keywords, as population=150, or EvolutionConfig.load(path) of a TOML file",
    "num_hidden": "genomes begin without hidden nodes, and mutations add them: add_node=0.05",
    "hidden": "genomes begin without hidden nodes, and mutations add them: add_node=0.05",
    "pop": "population=150 is the number of genomes; continue with result.population.evolve(fitness, generations)",
    "feed_forward": "recurrent=True allows cycles; without it genomes are feed-forward",
    "algorithm": "grids of layers evolve by GridPopulation(GridConfig(), network).evolve(problem, generations)",
    "search": "novelty is problems.NoveltySearch, several objectives are ParetoRun; see docs/evolution.md",
    "parallel": "executor=Workers(2) evaluates in processes",
    "n_jobs": "executor=Workers(2) evaluates in processes",
    "num_workers": "executor=Workers(2) evaluates in processes",
}
"""Keyword of another package that means something else here → what to write."""
_SECTIONS: Final[Mapping[str, type]] = {
    "genome": GenomeConfig,
    "mutation": MutationConfig,
    "species": SpeciesConfig,
    "reproduction": ReproductionConfig,
}
_SETTINGS: Final = frozenset(f.name for of in (EvolutionConfig, *_SECTIONS.values()) for f in fields(of))
"""Keywords of `evolve` that are settings."""


_FURTHER = ("generation", "stdev", "best_genome", "best_hidden", "best_connections", "species", "threshold")


class GenerationHistory(EventSeries[Evaluated]):
    """The events of generations. ``history["best"]`` is the list of their best fitness."""

    __slots__ = ()

    word: ClassVar[str] = "generation"
    values: ClassVar[tuple[str, ...]] = ("best", "mean", "worst", "failures", *_FURTHER)
    columns: ClassVar[int] = 4
    synonyms: ClassVar[Mapping[str, str]] = {"fitness": "best", "max": "best", "avg": "mean", "std": "stdev"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EvolutionResult:
    """The result of `evolve`. In a notebook it shows itself as a table, the curve of fitness and the champion.

    Attributes
    ----------
    champion : the best genome of the run
    fitness : its fitness
    generation : the generation in which it appeared, from 0
    history : one event for each generation; ``history["best"]`` lists the best fitness of each
    reason : why the run ended, one of `volumetric.evolution.loop.ENDS`
    population : the run; ``population.evolve(fitness, 50)`` continues it
    events : all events of the call; with ``genealogy=True`` also who descends from whom
    """

    champion: Genome
    fitness: float
    generation: int
    history: GenerationHistory
    reason: str
    population: Population
    events: tuple[Event, ...] = ()

    @property
    def solved(self) -> bool:
        """Whether the champion reached the fitness threshold."""
        return self.population.solved

    def activate(self, x: ArrayLike) -> NDArray[np.float64]:
        """Return the champion's outputs, [samples, outputs] for [samples, inputs], or [outputs] for [inputs]."""
        return self.champion.activate(np.asarray(x))

    predict = activate
    __call__ = activate

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the champion as a model for `volumetric.load`, replaced atomically.

        A name that ends in .json is the genome, .py or .c its source code, and .onnx, .npz or .safetensors a file of
        that format.

        Raises
        ------
        UnsupportedError : no network of layers computes this champion, which is recurrent or has other activations; or
            the name ends as a file of another format
        CheckpointError : the directory cannot be written, or holds something else
        """
        from volumetric.base.errors import UnsupportedError
        from volumetric.loaders.convert_model import save_network

        if Path(path).suffix == ".json":
            self.champion.save(path)
            return
        if Path(path).suffix in (".py", ".c"):
            from volumetric.evolution.genome_code import save_genome_source

            save_genome_source(path, self.champion)
            return
        try:
            network, params = self.champion.to_network()
        except UnsupportedError as error:
            name = Path(path).with_suffix(".json").name
            raise UnsupportedError(str(error), hint=f"save({name!r}) writes the genome, for Genome.load") from None
        save_network(path, network, params)

    def scope(self) -> ScopePage:
        """Return a page of the run: fitness, species, descent, and the best genome of each generation."""
        return page_of("evolution", self)

    def _rows(self) -> list[tuple[str, str]]:
        connections = int(self.champion.connections["enabled"].sum())
        return [
            ("fitness", f"{self.fitness:.6g}"),
            ("generations", f"{len(self.history)}, champion of {self.generation}"),
            ("champion", f"{self.champion.hidden} hidden nodes, {connections} connections"),
            ("ended by", self.reason),
        ]

    def __repr__(self) -> str:
        rows = self._rows()
        if len(self.history) > 1:
            rows.append(("best by generation", sparkline([event.best for event in self.history])))
        return "\n".join(["EvolutionResult", *(f"  {name:<18}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        best = [event.best for event in self.history]
        pictures = {"best by generation": sparkline_svg(best)} if len(best) > 1 else {}
        champion = image_of(picture_of("genome", self.champion), "champion")
        return facts_table(self._rows(), pictures=pictures) + champion


@accept_synonyms(_ANSWERS, _SETTINGS)
@explain_call_errors
def evolve(
    fitness: FitnessSource,
    inputs: int | None = None,
    outputs: int | None = None,
    *,
    population: int | None = None,
    generations: int = 100,
    seed: int | None = None,
    config: EvolutionConfig | None = None,
    first: Genome | None = None,
    device: AnyDevice = "auto",
    executor: Executor | Scorer | None = None,
    reporters: Sequence[AnyReporter[Event]] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    budget: Budget | None = None,
    stop: Stop | None = None,
    progress: bool | None = None,
    genealogy: bool = False,
    **settings: Any,
) -> EvolutionResult:
    """Evolve networks of nodes and connections by NEAT, and return the best one.

    Parameters
    ----------
    fitness : what is maximised: a function of a genome that returns a number, such as
        ``lambda net: -abs(net.activate([0.2, 0.8])[0] - 0.5)``; a problem, see `volumetric.evolution.problems`; the
        name of a problem, ``"xor"``, or of an environment of Gymnasium, ``"CartPole-v1"``; the class of an
        environment, a function without parameters that returns one, or an environment, which is copied; a table as in a
        file, ``{"kind": "parity", "bits": 4}``; or a tuple of inputs and targets that genomes learn to compute
    inputs, outputs : numbers of inputs and outputs; None: those of the problem, or 2 and 1
    population : genomes of a generation; None: that of `config`, by default 150
    generations : generations at most; the run ends earlier if a genome reaches ``fitness_threshold``
    seed : of all random numbers; None draws one, which ``result.population.seed`` tells
    config : settings, for those that are not passed by name
    first : see `Population`
    device, executor, reporters, checkpoint, budget, stop : see `Loop.evolve`. The stop button of a notebook ends the
        run after this generation; pressed again, at once
    progress : show a line with generation and fitness on stderr; None: on a terminal or in a notebook, if there are no
        `reporters`
    genealogy : store parents, species, fitness and size of every genome in the result, and how the best ones are built,
        for pages of the scope: about 50 bytes for each genome of each generation
    **settings : keys of `EvolutionConfig` and of its sections, such as ``fitness_threshold``, ``recurrent``,
        ``activation``, ``add_node``, or whole sections, ``species={"elitism": 3}``. Names of other packages that mean
        the same are accepted, as ``pop_size``

    Raises
    ------
    ArgumentError : a keyword is unknown; the hint says what to write
    SpecError : a setting is invalid, or contradicts the problem
    EvaluationError : the fitness of all genomes failed

    Examples
    --------
    >>> result = evolve("xor", generations=150, seed=1)
    >>> result.solved
    True
    >>> result.predict([[0, 1], [1, 1]]).round()
    array([[1.],
           [0.]])
    """
    if not isinstance(generations, int) or generations < 1:
        raise SpecError(f"generations must be at least 1, got {generations!r:.60}", hint="for example generations=100")
    problem = _problem(fitness)
    if isinstance(config, str | os.PathLike):
        config = EvolutionConfig.load(config)
    run = Population(_config(config, settings, inputs=inputs, outputs=outputs, population=population), seed, first)
    events = History(genealogy=genealogy)
    text = _GenerationLine(generations)
    lines = progress_lines(progress, text, others=bool(reporters), call="evolve", part=text.part)
    with stop_button(stop) as stop:
        champion: Champion = run.evolve(
            problem,
            generations,
            device=device,
            executor=executor,
            reporters=[*reporters, *lines, events],
            checkpoint=checkpoint,
            budget=budget,
            stop=stop,
        )
    return EvolutionResult(
        champion=champion.genome,
        fitness=champion.fitness,
        generation=champion.generation,
        history=GenerationHistory(events.generations),
        reason=run.ended,
        population=run,
        events=tuple(events.events),
    )


@dataclass(frozen=True, slots=True)
class _GenerationLine:
    """The progress line of an evolution run."""

    generations: int

    def __call__(self, event: Event) -> str | None:
        if not isinstance(event, Evaluated):
            return None
        return f"generation {event.generation + 1}/{self.generations}  best {event.best:.5g}  mean {event.mean:.5g}"

    def part(self, event: Event) -> float | None:
        return (event.generation + 1) / self.generations if isinstance(event, Evaluated) else None


def _problem(of: Any) -> Any:
    """Return a fitness function or a problem.

    Raises
    ------
    ArgumentError : `of` is none
    """
    if _is_environment(of) and isinstance(of, type):
        return Gym(entry=of)
    if isinstance(of, type):
        raise ArgumentError(f"evolve: fitness is the class {of.__name__}", hint=f"pass an instance: {of.__name__}(…)")
    if isinstance(of, Problem):
        return of
    if isinstance(of, str | Mapping):
        from volumetric.evolution.evolution_job import EvolutionJob, open_problem

        if isinstance(of, str) and (of.lower() == "cartpole" or _ENVIRONMENT.fullmatch(of)):
            of = {"kind": "gym", "id": "CartPole-v1" if of.lower() == "cartpole" else of}
        return open_problem(EvolutionJob(problem=of))
    if isinstance(of, tuple | list) and len(of) == 2:
        x, y = (np.asarray(part) for part in of)
        return Table.of(x[:, None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y)
    if _is_environment(of):
        spec: Any = getattr(of, "spec", None)
        if hasattr(spec, "id") and not getattr(spec, "additional_wrappers", ()):
            return Gym(id=spec.id, arguments=tuple(dict(spec.kwargs).items()))
        return Gym(id=type(of).__name__, entry=partial(copy.deepcopy, of))  # each genome plays in one of its own
    if not callable(of):
        raise ArgumentError(
            f"evolve: fitness is a {type(of).__name__}",
            hint='pass a function of a genome, or the name of a problem: "xor", "CartPole-v1"',
        )
    if _takes_nothing(of):
        return Gym(entry=of)
    takes_random(of)
    return of


def _is_environment(of: Any) -> bool:
    """Whether `of` is an environment of Gymnasium, or the class of one."""
    return hasattr(of, "reset") and hasattr(of, "step") and not isinstance(of, Problem)


def _takes_nothing(of: Callable[..., Any]) -> bool:
    """Whether a function has no parameters, as one that returns a new environment."""
    try:
        return not inspect.signature(of).parameters
    except (TypeError, ValueError):
        return False


def _config(config: EvolutionConfig | None, settings: Mapping[str, Any], **own: int | None) -> EvolutionConfig:
    """Return the configuration with the keywords of `evolve` in place of its own values."""
    config = config or EvolutionConfig()
    top, inner = dict[str, Any](), {name: dict[str, Any]() for name in _SECTIONS}
    for name, value in {**own, **settings}.items():
        if value is None:
            continue
        if name in _SECTIONS or hasattr(config, name):
            top[name] = value
            continue
        homes = [section for section in _SECTIONS if hasattr(getattr(config, section), name)]
        if len(homes) > 1:
            places = " or ".join(f'{home}={{"{name}": …}}' for home in homes)
            raise ArgumentError(f"evolve: {name} is in several sections", hint=f"pass {places}")
        inner[homes[0]][name] = value
    for section in _SECTIONS:
        table = top.pop(section, None)
        if isinstance(table, Mapping):
            inner[section] = {**table, **inner[section]}
        elif table is not None:
            config = replace(config, **{section: table})
    changes = {name: replace(getattr(config, name), **values) for name, values in inner.items() if values}
    return replace(config, **changes, **top)
