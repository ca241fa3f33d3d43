"""One evolution run: its directory, its progress display, and its results."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.base.progress import clock
from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.cli.run_lock import only_one
from volumetric.evolution.evolution_job import EvolutionJob, load_run, open_problem, open_run, read_job
from volumetric.evolution.generation_run import Run
from volumetric.evolution.genome import Genome
from volumetric.evolution.grids.grid_genome import GridGenome
from volumetric.evolution.nsga import ParetoRun, Point
from volumetric.evolution.reporters import (
    ConsoleReporter,
    Csv,
    Evaluated,
    EvaluationFailed,
    Event,
    JsonLines,
    TensorBoard,
)
from volumetric.evolution.resume_checks import check_facts, facts_of, take_over
from volumetric.evolution.workers import Workers
from volumetric.loaders.native_checkpoint import save_native

if TYPE_CHECKING:
    from rich.live import Live

CONFIG, CHECKPOINT, HISTORY, TABLE = "config.toml", "checkpoint.npz", "history.jsonl", "history.csv"
CHAMPION, MODEL, ORIGIN = "champion.json", "champion", "origin.json"
_ROWS, _REDRAW = 12, 0.1


@contextmanager
def open_new_run(config: Path, changes: dict[str, Any]) -> Iterator[tuple[EvolutionJob, Any, Any]]:
    """Open a new run and lock its directory, which must not hold another run."""
    job = read_job(config, changes)
    problem = open_problem(job)
    run = open_run(job, problem)
    home = job.directory
    with only_one(home):
        if (home / CHECKPOINT).exists():
            raise UsageError(
                f"{home} already holds a run",
                hint=f"continue it with --resume {home}, or write to another directory with --out",
            )
        text = config.read_bytes()
        write_atomic(home / CONFIG, text)
        _write_origin(job, changes, crc32(text))
        yield job, ParetoRun(run) if job.search == "nsga2" else run, problem


@contextmanager
def open_resumed_run(home: Path, changes: dict[str, Any]) -> Iterator[tuple[EvolutionJob, Any, Any]]:
    """Open a run at its checkpoint, and lock its directory.

    Changes to the configuration are applied if the run can continue with them, and refused otherwise.
    """
    if not (home / CONFIG).is_file() or not (home / ORIGIN).is_file():
        raise UsageError(f"{home} is not the directory of a run", hint="pass a directory that evolve wrote")
    with only_one(home):
        origin = _read_origin(home)
        changes = {**origin["changes"], **changes, "output": output_of(home)}
        job = read_job(home / CONFIG, changes)
        job = dataclasses.replace(job, home=Path(origin["home"]), name=origin["name"])
        _tell_of_edits(home, job, origin.get("crc32"))
        if not (home / CHECKPOINT).exists():
            problem = open_problem(job)
            run = open_run(job, problem)
        else:
            check_facts(job, origin.get("began", {}))
            problem, run = open_problem(job), load_run(job, home / CHECKPOINT)
            take_over(job, run, problem)
        _write_origin(job, changes, origin.get("crc32"))
        yield job, ParetoRun(run) if job.search == "nsga2" else run, problem


def output_of(directory: Path) -> str:
    """Return the value of ``output`` that means a directory as it was typed."""
    return str(directory.absolute() if str(directory).startswith("~") else directory)


def _write_origin(job: EvolutionJob, changes: dict[str, Any], checksum: int | None) -> None:
    home = job.directory
    origin = {
        "home": str(job.home.absolute()),
        "name": job.name,
        "changes": {**changes, "output": str(home.absolute())},
        "crc32": checksum,
        "began": facts_of(job),
    }
    write_atomic(home / ORIGIN, (json.dumps(origin, indent=1) + "\n").encode())


def _read_origin(home: Path) -> dict[str, Any]:
    try:
        origin = json.loads((home / ORIGIN).read_text(encoding="utf-8"))
        if isinstance(origin["changes"], dict) and isinstance(origin["home"], str) and isinstance(origin["name"], str):
            return origin
        raise ValueError("home, name and changes are expected")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{home / ORIGIN} is damaged: {error}", hint="start a new run from the configuration, with --out"
        ) from None


def _tell_of_edits(home: Path, job: EvolutionJob, checksum: int | None) -> None:
    """Warn if the run's configuration file has changed: the run uses its copy."""
    source = job.home / f"{job.name}.toml"
    if checksum is not None and source.is_file() and crc32(source.read_bytes()) != checksum:
        console.note(f"{source} has changed since the run began; the run continues with its copy, {home / CONFIG}")


def evolve_opened(job: EvolutionJob, run: Run[Any, Any] | ParetoRun, problem: Any, stop: Any) -> dict[str, Any]:
    """Evolve until the end, or until Ctrl-C, save the results, also after an error, and return a summary."""
    home = job.directory
    if isinstance(run, ParetoRun):
        return evolve_front(job, run, problem, stop, history=home / HISTORY, checkpoint=home / CHECKPOINT)
    done = run.evaluated
    left = job.generations - done
    reporters: list[Any] = [
        JsonLines(home / HISTORY, genealogy=job.genealogy),
        Csv(home / TABLE),
        EvolutionScreen(job.generations),
    ]
    reporters += [TensorBoard(home / "tensorboard")] if job.tensorboard else []
    reporters += job.reporters
    team = Workers(job.workers, timeout=job.timeout or None) if job.workers else nullcontext(None)
    if left > 0 and not run.solved:
        try:
            with team as executor:
                run.evolve(
                    problem,
                    left,
                    device=job.device,
                    executor=executor,
                    reporters=reporters,
                    checkpoint=home / CHECKPOINT,
                    checkpoint_every=job.checkpoint_every,
                    budget=job.budget,
                    stop=stop,
                )
        except BaseException:
            with suppress(VolumetricError):
                if save_champion(home, run):
                    console.note(f"{home}: the best genome so far is saved")
            raise
    return run_summary(job, run, save_champion(home, run))


def save_champion(home: Path, run: Run[Any, Any]) -> str:
    """Write the best genome as JSON and, if it is a network, as a checkpoint; return the latter's path or ``""``."""
    if run.champion is None:
        return ""
    genome = run.champion.genome
    if isinstance(genome, GridGenome):
        (home / CHAMPION).write_text(genome.network.to_json(), encoding="utf-8")
        save_native(home / MODEL, genome.network, genome.params)
        return str(home / MODEL)
    if not isinstance(genome, Genome):
        return ""
    genome.save(home / CHAMPION)
    try:
        save_native(home / MODEL, *genome.to_network())
    except UnsupportedError as error:
        console.note(f"the champion could not be saved as a model: {error}")
        return ""
    return str(home / MODEL)


def run_summary(job: EvolutionJob, run: Run[Any, Any], model: str) -> dict[str, Any]:
    """Return the summary of a run, as JSON data."""
    champion = run.champion
    return {
        "reason": run.ended or ("solved" if run.solved else "generations"),
        "solved": run.solved,
        "generations": run.evaluated,
        "seed": run.seed,
        "fitness": None if champion is None else champion.fitness,
        "genome": None if champion is None else champion.id,
        "directory": str(job.directory),
        "model": model,
    }


class EvolutionScreen:
    """Progress display: a table that is redrawn on a terminal, else a line for some generations.

    Parameters
    ----------
    total : number of generations of the run
    """

    def __init__(self, total: int) -> None:
        self._total, self._done, self._first = total, 0, 0
        self._began: float | None = None
        self._told = -1
        self._last: list[Evaluated] = []
        self._failed = ""
        self._live: Live | None = None
        self._shown = 0.0

    def start(self, step: int, epoch: int) -> None:
        """Begin at generation `epoch`, and open the table if stderr is a terminal."""
        self._done = self._first = epoch
        if self._done:
            console.note(f"resumed after generation {self._done - 1}")
        if sys.stderr.isatty() and console.notes_shown():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()

    def close(self) -> None:
        """Close the table, and print the line of the last generation unless it has been printed."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._last and self._last[-1].generation != self._told:
            console.note(self._line(self._last[-1]))
        self._last = []

    def report(self, event: Event, /) -> None:
        """Show an evaluated generation; store a failed genome for its line."""
        if isinstance(event, EvaluationFailed):
            self._failed = f"genome {event.genome}: {event.reason}"
        if not isinstance(event, Evaluated):
            return
        self._done = event.generation + 1
        if self._began is None:  # the first generation compiles kernels, and does not predict the time of the next ones
            self._began, self._first = time.monotonic(), self._done
        self._last = [*self._last, event][-_ROWS:]
        now = time.monotonic()
        if self._live is not None:
            if now - self._shown > _REDRAW:  # building a table takes longer than a small generation
                self._live.update(self._table())
                self._shown = now
        elif now - self._shown > 1.0:
            console.note(self._line(event))
            self._shown, self._told = now, event.generation

    def _time_left(self) -> str:
        count = self._done - self._first
        spent = time.monotonic() - (self._began or 0.0)
        return clock(spent / count * max(0, self._total - self._done)) if count else "?"

    def _line(self, event: Evaluated) -> str:
        failed = f", {event.failures} failed ({self._failed})" if event.failures else ""
        return (
            f"generation {event.generation}: best {event.best:.6g}, mean {event.mean:.6g}, {len(event.species)} species"
            f"{failed}, {self._time_left()} left"
        )

    def _table(self) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        title = f"generation {self._done} of {self._total}, {self._time_left()} left"
        drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("#", "best", "mean", "hidden", "links", "failed"):
            drawn.add_column(name, justify="right")
        drawn.add_column("species: sizes")
        for event in self._last:
            sizes = sorted(event.species.values(), reverse=True)
            drawn.add_row(
                *_numbers(event), Text(f"{len(sizes)}: {' '.join(map(str, sizes))}", overflow="ellipsis", no_wrap=True)
            )
        if self._failed:
            drawn.caption = f"last failure: {self._failed}"
        return drawn


def _numbers(event: Evaluated) -> Sequence[str]:
    return (
        str(event.generation), f"{event.best:.6g}", f"{event.mean:.6g}", str(event.best_hidden),
        str(event.best_connections), str(event.failures),
    )  # fmt: skip


FRONT = "front"


def evolve_front(
    job: EvolutionJob, run: ParetoRun, problem: Any, stop: Any, *, history: Path, checkpoint: Path
) -> dict[str, Any]:
    """Evolve until the end, or until Ctrl-C, save the front, and return a summary."""
    home, done = job.directory, run.evaluated
    reporters: list[Any] = [JsonLines(history, genealogy=job.genealogy)]
    reporters += [ConsoleReporter(seconds=1.0)] if console.notes_shown() else []
    reporters += [TensorBoard(home / "tensorboard")] if job.tensorboard else []
    reporters += job.reporters
    if job.generations > done:
        with Workers(job.workers, timeout=job.timeout or None) if job.workers else nullcontext(None) as executor:
            run.evolve(
                problem,
                job.generations - done,
                device=job.device,
                executor=executor,
                reporters=reporters,
                checkpoint=checkpoint,
                checkpoint_every=job.checkpoint_every,
                budget=job.budget,
                stop=stop,
            )
    save_front(home / FRONT, run.front)
    return {
        "reason": run.ended or "generations",
        "generations": run.generation + 1,
        "seed": run.population.seed,
        "front": [list(point.objectives) for point in run.front],
        "directory": str(home),
    }


def save_front(home: Path, front: tuple[Point, ...]) -> None:
    """Save every genome of a front under its id, grids as models, and ``front.json`` with their objectives."""
    home.mkdir(exist_ok=True)
    front_ids = {str(point.id) for point in front}
    for old in home.glob("*.json"):  # files of an earlier end of the run; only front.json lists the current models
        if old.stem.isdigit() and old.stem not in front_ids:
            old.unlink()
    for point in front:
        if isinstance(point.genome, Genome):
            point.genome.save(home / f"{point.id}.json")
        else:
            save_native(home / str(point.id), point.genome.network, point.genome.params)
    table = [{"genome": point.id, "objectives": list(point.objectives)} for point in front]
    write_atomic(home / "front.json", (json.dumps(table, indent=1) + "\n").encode())
