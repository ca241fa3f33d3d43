"""Memory tasks: what seven cells and a fabric learn of each, beside what has no memory.

    python -m benchmarks memory_tasks [--workers 16] [--log trials.jsonl] [--seeds 3] [--only copy,dyck2]
                                      [--models L,S,M] [--scale 1.0] [--table] [--update]

Each network is one layer of its cell, in its scaffold, between an embedding and a head, `WIDTH` features wide. It
learns from samples of the task's first length, with a budget of updates, and is judged on others of that length and of
four times it. `--workers` processes have one thread each. Every outcome is a line of `--log` at once, and what that has
already is not run again: an interrupted run goes on. `--scale` multiplies all budgets. `--table` runs nothing and
shows the outcomes that there are; `--update` writes the table into docs/memory_tasks.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arguments import argument_parser, write_between
from volumetric.train.memory import TASKS
from volumetric.train.memory.memory_baselines import names_of
from volumetric.train.memory.trial import Trial, TrialBudget, TrialOutcome
from volumetric.train.memory.trials import run_trials, summary

DOCUMENT = Path(__file__).parents[1] / "docs" / "memory_tasks.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
WIDTH, BATCH, JUDGED = 64, 32, 256
MODELS = ("L", "S", "M", "A", "X", "Ag", "C", "fabric")
LENGTHS = dict.fromkeys(TASKS, 64) | {"selective_copy": 96, "assoc_recall": 96}
"""Task → rows of the samples to learn from."""
STEPS = dict.fromkeys(TASKS, 1000) | {"copy": 2000, "selective_copy": 2000, "dyck2": 4000, "assoc_recall": 4000}
"""Task → updates, at most: learning ends before, where the mean loss of 50 of them is below 0.002."""


def trials_of(names: Sequence[str], models: Sequence[str], seeds: int, scale: float) -> list[Trial]:
    """All trials, the longest first, so that no process is left with one at the end."""
    found = [
        Trial(
            task=name,
            model=model,
            width=WIDTH,
            seed=seed,
            lengths=(LENGTHS[name], 4 * LENGTHS[name]),
            budget=TrialBudget(steps=max(1, round(scale * STEPS[name])), batch=BATCH, judged=JUDGED),
        )
        for name in names
        for model in (*models, *names_of(TASKS[name]))
        for seed in range(seeds)
    ]
    slow = {"fabric": 8, "X": 4, "Ag": 4, "M": 2, "S": 2}
    return sorted(found, key=lambda of: -slow.get(of.model, 1) * of.budget.steps * of.lengths[0])


def table(outcomes: Sequence[TrialOutcome], names: Sequence[str], models: Sequence[str]) -> list[str]:
    """Lines of a Markdown table: tasks and lengths downwards, baselines and networks across."""
    cells = {(row["task"], row["model"], row["length"]): row for row in summary(outcomes)}
    columns = ("prior", "bag", "last16", *models)
    lines = [
        f"| task | rows | {' | '.join(columns)} |",
        f"| --- | ---: | {' | '.join('---:' for _ in columns)} |",
    ]
    for name in (name for name in names if any(of.trial.task == name for of in outcomes)):
        for length in (LENGTHS[name], 4 * LENGTHS[name]):
            told: list[str] = []
            for column in columns:
                model = "linear" if TASKS[name].regression and column == "last16" else column
                row = cells.get((name, model, length))
                told.append("" if row is None else _cell(row["mean"], row["sd"], TASKS[name].regression))
            lines.append(f"| {name} | {length} | {' | '.join(told)} |")
    return lines


def _cell(mean: float, spread: float, values: bool) -> str:
    """Percent, or of values the error; bold where nearly all is right."""
    if values:
        return f"{mean:.3f} ± {spread:.3f}"
    told = f"{100 * mean:.0f} ± {100 * spread:.0f}"
    return f"**{told}**" if mean > 0.99 else told


def main() -> None:
    """Try, and print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--log", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    names, models = given.only.split(","), given.models.split(",")
    trials, began, done = trials_of(names, models, given.seeds, given.scale), time.perf_counter(), 0

    def tell(of: TrialOutcome) -> None:
        nonlocal done
        done += 1
        scores = ", ".join(f"{score:.3f} at {length}" for length, score in of.scores.items())
        trial, after = of.trial, time.perf_counter() - began
        print(
            f"{after:6.0f} s  {done}/{len(trials)}  {trial.task} {trial.model} {trial.seed}: {scores}, "
            f"{of.steps} updates, {of.seconds:.0f} s",
            flush=True,
        )

    stop = (lambda: True) if given.table else None
    outcomes = run_trials(trials, workers=given.workers, log=given.log, tell=tell, stop=stop)
    lines = table(outcomes, names, models)
    print(*lines, sep="\n")
    spent = sum(of.seconds for of in outcomes if math.isfinite(of.seconds))
    print(f"\n{len(outcomes)} outcomes, {spent / 60:.0f} minutes of one thread")
    if given.update:
        write_between(DOCUMENT, BEGIN, END, lines)


if __name__ == "__main__":
    main()
