"""Worker processes that may be killed: a fitness function that hangs or crashes fails only one genome."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from volumetric.base.errors import SpecError
from volumetric.base.import_by_name import import_plugins, plugin_modules
from volumetric.evolution.evaluate import Cohort, EvaluationError, PartScorer, Result, part_of, reason_of

_START_SECONDS = 120.0
"""Time after which a process counts as failed to start; importing and compiling take seconds."""
_LOAD_SECONDS = 10.0
"""Extra time of the first genome of a process: functions load modules at the first call."""
_GRACE_SECONDS = 2.0
_POLL_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class _WorkerProcess:
    """One process and its assigned rows; the first row is being scored."""

    process: Any
    pipe: Any
    rows: deque[int] = field(default_factory=deque)
    since: float = 0.0
    started: bool = False
    warm: bytes = b""
    """The function with which it has scored a genome, so that its modules are loaded."""


class Workers:
    """Processes of this machine that score genomes, for the `executor` of a run.

    Results equal those of serial evaluation for any number of workers. The fitness function is sent to each process
    once per generation, and must be at the top level of a module. Each process imports the main module again, so a
    script must run its code under ``if __name__ == "__main__":``.

    Parameters
    ----------
    count : processes; 0: one for each CPU core
    timeout : time limit of one genome in seconds; then its process is killed and replaced. None: no limit. The first
        genome of a process may take 10 s more, because the function imports modules and loads kernels; until a process
        has scored a genome, 120 s more, because kernels may have to be compiled
    retries : how often a genome is retried in another process after its process died

    Examples
    --------
    >>> with Workers(2, timeout=10.0) as workers:  # doctest: +SKIP
    ...     population.evolve(fitness, 100, executor=workers)
    """

    def __init__(self, count: int = 0, *, timeout: float | None = None, retries: int = 1) -> None:
        if count < 0 or retries < 0 or (timeout is not None and not timeout > 0):
            raise SpecError(f"workers need count ≥ 0, retries ≥ 0, timeout > 0, got {count}, {retries}, {timeout}")
        self.count: int = count or os.cpu_count() or 1
        self.timeout = timeout
        self.retries = retries
        self._context = multiprocessing.get_context("spawn")  # a fork would not copy the threads of the kernels
        self._workers: list[_WorkerProcess] = []
        self.warm = b""
        """The function with which a process has scored a genome, so that compiled kernels are on disk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            _end(worker)
        self._workers.clear()

    def score(self, function: PartScorer, cohort: Cohort) -> list[Result]:
        """Return the result of `function` for each genome; an exception is the failure of a genome.

        Raises
        ------
        EvaluationError : the function cannot be sent to another process, or no process can be started
        """
        try:
            pickled = pickle.dumps(function)
        except Exception as error:
            raise EvaluationError(
                f"the fitness function cannot be sent to a process: {error}",
                hint="define it at the top level of a module",
            ) from error
        round_ = _Round(self, pickled, cohort)
        try:
            return round_.play()
        except BaseException:
            self.close()  # a worker may still score a genome that is no longer needed
            raise

    def start(self) -> _WorkerProcess:
        """Start one process."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            sys.exit(1)  # a worker imports a script without a main guard: its parent prints the hint, once
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, plugin_modules()), daemon=True)
        process.start()
        theirs.close()
        worker = _WorkerProcess(process, mine, since=time.monotonic())
        self._workers.append(worker)
        return worker

    def replace(self, worker: _WorkerProcess) -> _WorkerProcess:
        """Kill a process and start another one."""
        self._workers.remove(worker)
        _end(worker)
        return self.start()

    def workers_for(self, size: int) -> list[_WorkerProcess]:
        """Return `size` processes, starting those that are missing."""
        while len(self._workers) < size:
            self.start()
        return self._workers[:size]


class _Round:
    """Evaluation of one generation by the workers."""

    def __init__(self, workers: Workers, function: bytes, cohort: Cohort) -> None:
        self._workers, self._function, self._cohort = workers, function, cohort
        self._results: dict[int, Result] = {}
        self._deaths: dict[int, int] = {}
        self._waiting = deque(range(len(cohort)))
        self._size = max(1, min(16, len(cohort) // (4 * workers.count)))

    def play(self) -> list[Result]:
        total = len(self._cohort)
        team = self._workers.workers_for(min(self._workers.count, total))
        for worker in team:
            self._brief(worker)
        while len(self._results) < total:
            ready = wait([worker.pipe for worker in team], timeout=self._patience(team))
            for i, worker in enumerate(team):
                alive = worker.pipe not in ready or self._receive(worker)
                if not alive:
                    team[i] = self._bury(worker, "the process of the fitness function died")
                elif self._late(worker) and not worker.pipe.poll():
                    self._workers.warm = self._function  # kernels have been compiled by now
                    team[i] = self._bury(worker, f"no fitness after {self._workers.timeout} s", final=True)
        return [self._results[row] for row in range(total)]

    def _brief(self, worker: _WorkerProcess) -> None:
        """Send a worker the function and its first rows."""
        self._send(worker, ("function", self._function))
        self._feed(worker)

    def _feed(self, worker: _WorkerProcess) -> None:
        rows = [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
        if rows:
            worker.rows.extend(rows)
            worker.since = time.monotonic()
            self._send(worker, ("rows", [(row, part_of(self._cohort, row, row + 1)) for row in rows]))

    def _send(self, worker: _WorkerProcess, message: Any) -> None:
        try:
            worker.pipe.send(message)
        except OSError:
            return  # the process is dead, which the next wait detects

    def _receive(self, worker: _WorkerProcess) -> bool:
        """Read all messages of a worker; False if it is dead."""
        try:
            while worker.pipe.poll():
                row, value, reason = worker.pipe.recv()
                worker.since, worker.started = time.monotonic(), True
                if row is None:
                    if reason:
                        raise EvaluationError(
                            f"a process cannot use the fitness function: {reason}",
                            hint="define it at the top level of a module that can be imported",
                        )
                    continue
                worker.rows.remove(row)
                worker.warm = self._workers.warm = self._function
                self._results[row] = (value, reason)
        except (EOFError, OSError):
            return False
        if not worker.rows:
            self._feed(worker)
        return True

    def _late(self, worker: _WorkerProcess) -> bool:
        return time.monotonic() > self._end_of(worker)

    def _end_of(self, worker: _WorkerProcess) -> float:
        """Return the deadline of a worker."""
        if not worker.started:
            return worker.since + _START_SECONDS
        if self._workers.timeout is None or not worker.rows:
            return math.inf
        if worker.warm == self._function:
            return worker.since + self._workers.timeout
        loading = _LOAD_SECONDS if self._workers.warm == self._function else _START_SECONDS
        return worker.since + self._workers.timeout + loading

    def _patience(self, team: Iterable[_WorkerProcess]) -> float:
        """Return the seconds until the earliest deadline."""
        now = time.monotonic()
        return max(0.01, min([*map(self._end_of, team), now + _POLL_SECONDS]) - now)

    def _bury(self, worker: _WorkerProcess, reason: str, *, final: bool = False) -> _WorkerProcess:
        """Replace a worker; its current genome fails or is retried, and its other rows are queued again."""
        rows = list(worker.rows)
        if rows and worker.started:
            row, *rows = rows
            self._deaths[row] = self._deaths.get(row, 0) + 1
            if final or self._deaths[row] > self._workers.retries:
                self._results[row] = (math.nan, reason)
            else:
                rows.insert(0, row)
        elif not worker.started:
            self._deaths[-1] = self._deaths.get(-1, 0) + 1
            if self._deaths[-1] > 3:
                raise EvaluationError(
                    "worker processes exit at startup",
                    hint='put the code of the script under if __name__ == "__main__": and the fitness function above '
                    "it, because each process imports the main module again",
                )
        self._waiting.extendleft(reversed(rows))
        successor = self._workers.replace(worker)
        self._brief(successor)
        return successor


def _end(worker: _WorkerProcess) -> None:
    worker.process.kill()
    worker.process.join(_GRACE_SECONDS)
    worker.pipe.close()


def _serve(pipe: Connection, plugins: Sequence[str]) -> None:
    """Body of a process: score what comes through the pipe until it closes; `plugins` are imported before."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers itself
    function: Any = None
    while True:
        try:
            kind, load = pipe.recv()
        except (EOFError, OSError):
            return
        if kind == "function":
            try:
                import_plugins(plugins)
                function, reason = pickle.loads(load), ""
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            pipe.send((None, 0.0, reason))
            continue
        for row, part in load:
            pipe.send((row, *_score_safely(function, part)))


def _score_safely(function: PartScorer, part: Cohort) -> Result:
    try:
        return function(part)[0]
    except Exception as error:
        return math.nan, reason_of(error)
