"""A run of evolution as a view: species, fitness, sizes, genealogy, best genomes and fronts by generation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, SpecError, VolumetricError
from volumetric.base.hints import path_hint
from volumetric.evolution.evolve_call import EvolutionResult
from volumetric.evolution.genealogy import KINDS, BestGenome, best_genome
from volumetric.evolution.generation_run import Run
from volumetric.evolution.history_file import read_history
from volumetric.evolution.nsga import OBJECTIVES, ParetoRun
from volumetric.evolution.reporters import Evaluated, Event, FrontEvaluated, History
from volumetric.scope.document import ScopeView
from volumetric.scope.evolution_rows import EvolutionRows, size_names
from volumetric.scope.evolution_thinning import (
    thin_births,
    thin_champions,
    thin_fronts,
    thin_generations,
    thin_species,
)

HISTORY: Final = "history.jsonl"
CHECKPOINT: Final = "checkpoint.npz"
_NO_GENEALOGY: Final = (
    "This run did not record who descends from whom. To record it, pass genealogy=True to evolve, to History or to "
    "JsonLines(path), or write genealogy = true into the configuration file."
)
_NO_CHAMPIONS: Final = "The structure of the best genomes was not recorded; genealogy=True records it, too."


def evolution_view(
    source: EvolutionResult | History | Run[Any, Any] | ParetoRun | Iterable[Event] | str | Path,
    *,
    name: str = "evolution",
    label: str = "Evolution",
) -> ScopeView:
    """Return a view of a run of evolution.

    Parameters
    ----------
    source : a result of `evolve`; a `History`, or events in the order of their report; a population or a `ParetoRun`,
        of which the current generation is shown; or a path: the directory of ``volumetric evolve``, a file of
        `JsonLines`, or a checkpoint, of which the last generation is shown

    Raises
    ------
    CheckpointError : a file is missing, damaged or too large
    SpecError : the source has no evaluated generation
    """
    rows = EvolutionRows()
    rows.add_all(events_of(source))
    return view_of_rows(rows, name=name, label=label)


def events_of(source: Any) -> list[Event]:
    """Return the events of any source of `evolution_view`; raises what it does."""
    match source:
        case EvolutionResult():
            best = best_genome(
                source.champion, generation=source.generation, id=_best_id(source), fitness=source.fitness
            )
            return _with_best(list(source.events) or list(source.history), best)
        case History():
            return list(source.events)
        case Run() | ParetoRun():
            return _with_best(list(source.events()), _best_of(source))
        case str() | Path():
            return _events_at(Path(source))
        case Iterable():
            return list(source)
        case _:
            raise SpecError(
                f"a {type(source).__name__} is no run of evolution",
                hint="pass the result of evolve, a History, a population, or the directory of a run",
            )


def is_evolution(path: Path) -> bool:
    """Whether a path is a directory, a history or a checkpoint of evolution, by its first bytes."""
    from volumetric.evolution.history_file import event_of

    where = path / HISTORY if path.is_dir() else path
    try:
        if where.suffix == ".npz":
            return _run_of(where) is not None
        with where.open("rb") as file:
            return event_of(file.readline(1 << 22)) is not None
    except (OSError, ValueError, VolumetricError):
        return False


def view_of_rows(rows: EvolutionRows, *, name: str, label: str, running: bool = False) -> ScopeView:
    """Return the view of rows that were collected, see `evolution_view`.

    Parameters
    ----------
    running : the run goes on; there may be no row yet
    """
    every = rows.rows()
    if not every and not running:
        raise SpecError("no generation was evaluated yet", hint="evaluate one, then look at the run")
    notes: list[str] = [rows.solved] if rows.solved else []
    shown = thin_generations(every, notes)
    births = [row["births"] for row in shown if "births" in row] if len(shown) == len(every) else []
    champions = [row["champion"] for row in every if "champion" in row]
    data: dict[str, Any] = {
        "running": running,
        "kinds": list(KINDS),
        "sizeNames": next((row["sizeNames"] for row in reversed(every) if "sizeNames" in row), size_names(None)),
        "rows": len(every),
        "generations": _numbers(shown),
        "species": thin_species(shown, rows.ended_species(), notes),
        "births": thin_births(births, _champion_ids(every), notes) if births else None,
        "champions": thin_champions(champions, notes),
        "fronts": thin_fronts(shown, notes),
        "whyNoGenealogy": "" if births else _NO_GENEALOGY if len(shown) == len(every) else _too_long(len(every)),
        "whyNoChampions": "" if champions else _NO_CHAMPIONS,
        "notes": notes,
    }
    return ScopeView(kind="evolution", name=name, label=label, data=data)


def _numbers(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of generations as arrays; NaN where a run does not report one."""

    def column(key: str, dtype: type = np.float64) -> Any:
        return np.array([row.get(key, np.nan) for row in rows], dtype)

    names = ("best", "mean", "stdev", "worst", "hidden", "connections", "meanHidden", "meanConnections", "threshold")
    return {
        "generation": column("generation", np.int64),
        "bestGenome": column("bestGenome", np.int64),
        "failures": column("failures", np.int64),
        **{name: column(name) for name in names},
    }


def _champion_ids(rows: list[dict[str, Any]]) -> list[int]:
    """Return the ids of the best genomes, which a thinned genealogy keeps."""
    return [int(row["bestGenome"]) for row in rows]


def _too_long(generations: int) -> str:
    return f"The genealogy of {generations:,} generations is too long for a page."


def _with_best(events: list[Event], best: BestGenome | None) -> list[Event]:
    """Return events with the best genome before its generation ends, if there is no structure among them."""
    if best is None or any(event.event == "BestGenome" for event in events):
        return events
    ends = [i for i, event in enumerate(events) if isinstance(event, Evaluated | FrontEvaluated)]
    at = next((i for i in ends if events[i].generation >= best.generation), ends[-1] if ends else len(events))
    return [*events[:at], best, *events[at:]]


def _best_id(result: EvolutionResult) -> int:
    at = [event.best_genome for event in result.history if event.generation == result.generation]
    return at[0] if at else 0


def _events_at(path: Path) -> list[Event]:
    """Return the events of files. A directory without genealogy still has the champion in its checkpoint."""
    if path.suffix == ".npz" and path.is_file():
        return events_of(_run_of(path))
    where = path / HISTORY if path.is_dir() else path
    if not where.exists():
        raise CheckpointError(f"there is no {where}", hint=path_hint(where))
    events = read_history(where)
    if not events:
        raise SpecError(f"{where} has no event of an evolution run", hint=f"pass {HISTORY} of a run with a generation")
    checkpoint = where.parent / CHECKPOINT
    if any(event.event == "BestGenome" for event in events) or not checkpoint.is_file():
        return events
    try:
        return _with_best(events, _best_of(_run_of(checkpoint)))
    except VolumetricError:
        return events  # the history can be shown without the champion


def _best_of(run: Run[Any, Any] | ParetoRun) -> BestGenome | None:
    """Return the structure of the best genome of a run, or of the point that is best by the first objective."""
    if isinstance(run, ParetoRun):
        best = run.front[-1] if run.front else None
        return best and best_genome(best.genome, generation=run.generation, id=best.id, fitness=best.objectives[0])
    best = run.champion
    return best and best_genome(best.genome, generation=best.generation, id=best.id, fitness=best.fitness)


def _run_of(path: Path) -> Run[Any, Any] | ParetoRun:
    """Return the run of a checkpoint, for any kind of genome."""
    from volumetric.evolution.grids.grid_population import GridPopulation
    from volumetric.evolution.population import Population

    try:
        run: Run[Any, Any] = Population.load(path)
    except CheckpointError as first:
        try:
            run = GridPopulation.load(path)
        except CheckpointError:
            raise first from None
    return ParetoRun(run) if OBJECTIVES in run.extras else run


def message_rows(rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows as JSON data with arrays in base64, for messages and answers."""
    from volumetric.scope.document import encode_message

    return json.loads(encode_message({"rows": rows}))["rows"]
