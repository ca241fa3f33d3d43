"""The command ``evolve``: networks for a problem from a configuration file, and pictures of a run."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, check_device
from volumetric.cli.train import change_of

if TYPE_CHECKING:
    from volumetric.evolution.evolution_job import EvolutionJob

PLOT = "plot"


def evolve(
    config: str | None = None,
    run: Path | None = None,
    /,
    *,
    resume: Path | None = None,
    out: Path | None = None,
    generations: int | None = None,
    device: Annotated[str | None, Parameter(name=["--device", "-dev"])] = None,
    workers: int | None = None,
    change: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    form: Annotated[str | None, Parameter(name="--format")] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Evolve networks from a TOML file, or draw a run: evolve CONFIG, evolve --resume RUN, evolve plot RUN.

    Every key has a default, and an empty file evolves XOR. Checkpoint, history and champion are written to a directory
    in the working directory, named after the file. Ctrl-C stops the run after the generation and saves a checkpoint.
    docs/evolution.md lists all keys.

    Parameters
    ----------
    config : str
        The TOML file; or the word plot, followed by RUN.
    run : path
        With plot: the directory of a run.
    resume : path
        Continue the run in this directory, as if it had not been interrupted. Changes that would make it another run,
        such as another seed or problem, are refused; rates, species, goal, budget, workers and generations may change.
    out : path
        Directory to write.
    generations : int
        Generations of the whole run; default: from the file.
    device : str
        Device for problems that activate all genomes at once: auto, cpu, gpu, gpu:1, or reference; default: from the
        file, else auto, which is the device in VOLUMETRIC_DEVICE, else the CPU.
    workers : int
        Processes that evaluate genomes; default: from the file.
    change : tuple of str
        KEY=VALUE overrides a key of the file, such as species.target=6; may be repeated.
    form : str
        Format of pictures: png (the default), svg or pdf.
    json : bool
        Print the result as one JSON object.
    """
    output.apply()
    if config == PLOT:
        if resume or out or change or json or any(flag is not None for flag in (generations, device, workers)):
            raise UsageError("evolve plot draws an existing run: its only option is --format")
        return _plot(run, form or "png")
    if run is not None or (config is None) == (resume is None):
        raise UsageError("pass one configuration, or --resume RUN, or plot RUN")
    if form is not None:
        raise UsageError(
            "--format applies only to pictures", hint="leave it out, or write evolve plot RUN --format svg"
        )
    if resume is not None and out is not None:
        raise UsageError("a run continues in its own directory", hint="leave --out out, or move the directory")
    if device is not None:
        check_device(device)
    changes = dict(map(change_of, change))
    flags = {"generations": generations, "device": device, "workers": workers}
    changes |= {name: value for name, value in flags.items() if value is not None}
    from volumetric.cli import evolve_job

    if out is not None:
        changes["output"] = evolve_job.output_of(out)

    from volumetric.cli.interrupts import stop_on_interrupt

    with ExitStack() as stack:
        with console.progress("opening the problem…"):
            opening = (
                evolve_job.open_new_run(Path(str(config)), changes)
                if resume is None
                else evolve_job.open_resumed_run(resume, changes)
            )
            job, population, problem = stack.enter_context(opening)
        with stop_on_interrupt("this generation") as stop:
            outcome = evolve_job.evolve_opened(job, population, problem, stop.is_set)
    console.write_json(outcome) if json else console.write(_text(outcome, job))
    return exits.INTERRUPTED if outcome["reason"] == "stopped" else exits.OK


def _text(outcome: dict[str, Any], job: EvolutionJob) -> str:
    """Return a summary for people: how the run ended, its result, its files, and what continues it."""
    home, seed = outcome["directory"], f"seed {outcome['seed']}"
    end = _end(outcome, job)
    if "front" in outcome:
        lines = [f"{end}, {seed}; the front:"]
        lines += ["  ".join(f"{value:.6g}" for value in point) for point in outcome["front"]]
        lines.append(f"{home}: checkpoint, history, front/front.json")
    else:
        lines = [f"{end}, fitness {outcome['fitness']}, {seed}", f"{home}: checkpoint, history, champion.json"]
        lines += [f"{outcome['model']}: the champion as a model"] if outcome["model"] else []
    option = _option_to_continue(outcome["reason"], job)
    if option is not None:
        lines.append(f"to continue: volumetric evolve --resume {shlex.quote(home)}{option}")
    return "\n".join(lines) + "\n"


def _end(outcome: dict[str, Any], job: EvolutionJob) -> str:
    """Return how a run ended, and after how many generations."""
    reason, after = outcome["reason"], f"after {console.plural(outcome['generations'], 'generation')}"
    if reason in ("solved", "stopped"):
        return f"{reason} {after}"
    if reason == "generations":
        return f"ended {after}, as generations = {job.generations}"
    return f"ended {after}, as budget.{reason} = {getattr(job.budget, reason)} is spent"


def _option_to_continue(reason: str, job: EvolutionJob) -> str | None:
    """Return the option with which a run goes on; empty if it needs none, None if it has reached its goal."""
    if reason == "solved":
        return None
    if reason == "generations":
        return f" --generations {2 * job.generations}"
    if reason in ("evaluations", "patience"):
        return f" --set budget.{reason}={2 * getattr(job.budget, reason)}"
    return ""


def _plot(run: Path | None, form: str) -> int:
    if run is None:
        raise UsageError("evolve plot needs the directory of a run", hint="write volumetric evolve plot RUN")
    from volumetric.viz.run_plots import plot_run

    for path in plot_run(run, form):
        console.write(f"{path}\n")
    return exits.OK
