"""The command ``tasks``: memory tasks, and the results of networks on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, check_device


def tasks(
    what: Literal["list", "run"],
    /,
    *names: str,
    model: Annotated[str, Parameter(name=["--model", "-m"])] = "L",
    width: int = 64,
    seeds: int = 3,
    lengths: str | None = None,
    steps: int = 1000,
    batch: Annotated[int, Parameter(name=["--batch", "-b"])] = 32,
    lr: float = 3e-3,
    judged: int = 256,
    workers: int = 1,
    log: Path | None = None,
    form: Annotated[Literal["md", "csv", "json", "jsonl"], Parameter(name=["--output", "-o"])] = "md",
    device: Annotated[str, Parameter(name=["--device", "-dev"])] = "cpu",
    output: OutputOptions = OutputOptions(),
) -> int:
    """List tasks that need memory, or train networks on them: tasks list, tasks run assoc_recall --model MS.

    A network is trained on samples of the first length and tested on new samples of all lengths; the table includes the
    chance level without memory. It shows accuracies, mean ± standard deviation over seeds; for sines the squared error
    in units of the variance. docs/memory_tasks.md has more. Ctrl-C stops after the running trials, and shows the
    results so far.

    Parameters
    ----------
    what : {"list", "run"}
        The action.
    names : str
        Tasks to run; default: all.
    model : str
        Cells of a stack by their letters: A Axon, X attention with a memory, M mLSTM, S sLSTM, L LSTM, C causal
        convolution, Ag AGaLiTe; followed by ^, with projections that remember. Several letters are a column of cells,
        M/S is two layers. Or fabric. Separate several networks by commas.
    width : int
        Features of a row between the cells.
    seeds : int
        Networks of each kind, each with its own weights and samples.
    lengths : str
        Lengths of samples in rows, separated by commas: the first for training, all for testing. Default: the task's
        length, and four times that.
    steps : int
        Most updates; training stops earlier at a mean loss of 0.002.
    batch : int
        Samples of an update.
    lr : float
        Learning rate.
    judged : int
        Test samples for each length.
    workers : int
        Processes, each with one thread.
    log : path
        File to which each result is appended as a JSON line; trials that it already contains are not run again.
    form : {"md", "csv", "json", "jsonl"}
        Format of the table on stdout.
    device : str
        Device for training: cpu, gpu, gpu:1, reference, or auto.
    """
    output.apply()
    check_device(device)
    from volumetric.train.memory import TASKS

    if what == "list":
        if names:
            raise UsageError("tasks list does not accept names", hint=f"tasks run {names[0]}")
        return _list(form)
    from volumetric.cli.interrupts import stop_on_interrupt
    from volumetric.train.memory.memory_baselines import names_of
    from volumetric.train.memory.trial import Trial, TrialBudget, TrialOutcome
    from volumetric.train.memory.trials import run_trials, summary

    unknown = next((name for name in names if name not in TASKS), None)
    if unknown is not None:
        raise UsageError(f"unknown task {unknown!r}", hint=f"one of {', '.join(TASKS)}")
    if seeds < 1:
        raise UsageError(f"--seeds must be 1 or more, got {seeds}")
    rows = () if lengths is None else _numbers(lengths)
    budget = TrialBudget(steps=steps, batch=batch, rate=lr, judged=judged)
    trials = [
        Trial(task=name, model=pattern, width=width, seed=seed, lengths=rows or _usual(TASKS[name]), budget=budget)
        for name in names or TASKS
        for pattern in (*model.split(","), *names_of(TASKS[name]))
        for seed in range(seeds)
    ]

    def tell(of: TrialOutcome) -> None:
        scores = ", ".join(f"{score:.3f} at {length}" for length, score in of.scores.items())
        console.note(f"{of.trial.task} {of.trial.model} seed {of.trial.seed}: {scores} ({of.seconds:.0f} s)")

    with stop_on_interrupt("the running trials") as stop:
        outcomes = run_trials(trials, workers=workers, device=device, log=log, tell=tell, stop=stop.is_set)
    _show(summary(outcomes), form)
    return exits.INTERRUPTED if stop.is_set() else exits.OK


def _usual(task: Any) -> tuple[int, ...]:
    return task.length, 4 * task.length


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--lengths must be numbers separated by commas, got {text!r}") from None


def _list(form: str) -> int:
    from volumetric.bench.bench_tables import render_table
    from volumetric.train.memory import TASKS

    rows = [
        {
            "task": task.name,
            "asks": task.about,
            "needs": task.needs,
            "length": task.length,
            "chance": None if task.regression else task.chance,
        }
        for task in TASKS.values()
    ]
    cells = [[r["task"], r["asks"], r["needs"], str(r["length"]), _percent(r["chance"])] for r in rows]
    console.write(render_table(rows, "task | asks | needs | length | chance", cells, form, left=3))
    return exits.OK


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}".replace("%", " %")


def _show(rows: list[dict[str, Any]], form: str) -> None:
    from volumetric.bench.bench_tables import render_table
    from volumetric.train.memory import TASKS

    cells: list[list[str]] = []
    for row in rows:
        values = TASKS[row["task"]].regression
        mean = (
            f"{row['mean']:.4f} ± {row['sd']:.4f}"
            if values
            else f"{row['mean']:.1%} ± {row['sd']:.1%}".replace("%", " %")
        )
        learned = "" if not row["parameters"] else f"{row['parameters']:,}"
        cells.append([row["task"], row["model"], str(row["length"]), learned, str(row["seeds"]), mean])
    console.write(render_table(rows, "task | model | length | weights | seeds | mean ± sd", cells, form, left=2))
