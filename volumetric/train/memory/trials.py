"""Many trials in several processes; outcomes are appended to a log, and logged trials are not repeated."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.base.hints import path_hint, write_hint
from volumetric.base.import_by_name import import_plugins, plugin_modules
from volumetric.devices.named_devices import open_device
from volumetric.train.memory import TASKS
from volumetric.train.memory.trial import Trial, TrialBudget, TrialOutcome, run_trial

MAX_BYTES = 100_000_000


class _LogLine(msgspec.Struct, forbid_unknown_fields=True):
    task: str
    model: str
    width: int
    seed: int
    lengths: list[int]
    budget: TrialBudget
    scores: dict[int, float]
    loss: float | None
    steps: int
    parameters: int
    seconds: float


def run_trials(
    trials: Sequence[Trial],
    *,
    workers: int = 1,
    device: str = "cpu",
    log: Path | None = None,
    tell: Callable[[TrialOutcome], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[TrialOutcome]:
    """Run trials, and return the outcomes of those that have one, in their order.

    Parameters
    ----------
    workers : processes, each with one thread; 1: this process. With more, a script must run its code under
        ``if __name__ == "__main__":``
    device : a name, as for `open_device`
    log : file of JSON lines. Outcomes of the same trials are read from it, and new outcomes are appended
    tell : called with each new outcome
    stop : called between outcomes; true skips trials that have not started

    Raises
    ------
    SpecError : a trial is invalid
    CheckpointError : the file is not a log of trials, or cannot be written
    """
    if workers < 1:
        raise SpecError(f"workers must be at least 1, got {workers}")
    for trial in trials:
        if trial.task not in TASKS:
            raise SpecError(f"unknown task {trial.task!r}", hint=f"one of {', '.join(TASKS)}")
    known = {_key(of.trial): of for of in read_log(log)} if log is not None and log.exists() else {}
    missing = [trial for trial in trials if _key(trial) not in known]
    run = _in_processes if workers > 1 and len(missing) > 1 else _in_place
    for outcome in run(missing, workers, device, stop or (lambda: False)):
        known[_key(outcome.trial)] = outcome
        if log is not None:
            _append(log, outcome)
        if tell is not None:
            tell(outcome)
    return [known[_key(trial)] for trial in trials if _key(trial) in known]


def _key(trial: Trial) -> str:
    return json.dumps(trial.to_dict(), sort_keys=True)


def _in_place(trials: Sequence[Trial], workers: int, device: str, stop: Callable[[], bool]) -> Iterator[TrialOutcome]:
    for trial in trials:
        if stop():
            return
        yield _try_trial(trial, device)


def _in_processes(
    trials: Sequence[Trial], workers: int, device: str, stop: Callable[[], bool]
) -> Iterator[TrialOutcome]:
    context = multiprocessing.get_context("spawn")  # a fork would not copy the threads of the kernels
    waiting, running = list(trials), set[Future[TrialOutcome]]()
    pool = ProcessPoolExecutor(min(workers, len(trials)), mp_context=context)
    try:
        while (waiting and not stop()) or running:
            while waiting and len(running) < workers and not stop():
                running.add(pool.submit(_try_trial_of, plugin_modules(), waiting.pop(0), device))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _try_trial_of(plugins: Sequence[str], trial: Trial, device: str) -> TrialOutcome:
    """Run a trial in another process, which may not have imported the module of a user's task."""
    if trial.task not in TASKS:
        import_plugins(plugins)
    return _try_trial(trial, device)


def _try_trial(trial: Trial, device: str) -> TrialOutcome:
    return run_trial(trial, TASKS[trial.task], device=open_device(device, threads=1 if device == "cpu" else None))


def _append(log: Path, outcome: TrialOutcome) -> None:
    """Append a line in one write, and sync it to disk."""
    line = {**outcome.trial.to_dict(), "scores": outcome.scores}
    line |= {name: getattr(outcome, name) for name in ("loss", "steps", "parameters", "seconds")}
    try:
        with log.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        raise CheckpointError(f"cannot write {log}: {error.strerror or error}", hint=write_hint(log)) from None


def read_log(path: Path) -> list[TrialOutcome]:
    """Read outcomes. An incomplete last line, as after a crash, is removed from the file if all other lines are valid.

    Raises
    ------
    CheckpointError : the file cannot be read, or has a line that is not an outcome
    """
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path} is not a log of trials", hint=f"a file of at most {MAX_BYTES:,} bytes")
        raw = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from None
    whole = raw[: raw.rfind(b"\n") + 1]
    outcomes: list[TrialOutcome] = []
    for number, text in enumerate(whole.splitlines(), start=1):
        try:
            outcomes.append(_outcome(msgspec.json.decode(text, type=_LogLine)))
        except (msgspec.MsgspecError, SpecError, RecursionError) as error:
            raise CheckpointError(
                f"{path}, line {number} is not an outcome: {error}", hint="use another file"
            ) from None
    if whole != raw:
        os.truncate(path, len(whole))
    return outcomes


def _outcome(line: _LogLine) -> TrialOutcome:
    trial = Trial(
        task=line.task,
        model=line.model,
        width=line.width,
        seed=line.seed,
        lengths=tuple(line.lengths),
        budget=line.budget,
    )
    if not all(math.isfinite(value) for value in line.scores.values()):
        raise SpecError("a score is not finite")
    return TrialOutcome(
        trial=trial,
        scores=line.scores,
        loss=line.loss,
        steps=line.steps,
        parameters=line.parameters,
        seconds=line.seconds,
    )


def summary(outcomes: Sequence[TrialOutcome]) -> list[dict[str, Any]]:
    """Return a row for each task, model and length: mean and standard deviation of the scores over seeds."""
    groups: dict[tuple[str, str, int], list[TrialOutcome]] = {}
    for outcome in outcomes:
        for length in outcome.scores:
            groups.setdefault((outcome.trial.task, outcome.trial.model, length), []).append(outcome)
    rows: list[dict[str, Any]] = []
    for (task, model, length), of in groups.items():
        scores = [outcome.scores[length] for outcome in of]
        mean = sum(scores) / len(scores)
        spread = math.sqrt(sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)) if len(scores) > 1 else 0.0
        rows.append(
            {
                "task": task,
                "model": model,
                "length": length,
                "learned": next(iter(of[0].scores)),
                "seeds": len(of),
                "mean": mean,
                "sd": spread,
                "parameters": of[0].parameters,
                "steps": round(sum(outcome.steps for outcome in of) / len(of)),
            }
        )
    return rows
