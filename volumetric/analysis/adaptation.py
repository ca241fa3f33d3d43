"""Adaptation: accuracy over time of a model whose task changes while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from volumetric.base.errors import SpecError
from volumetric.base.notebook_html import ShowsFields


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyWindow:
    """A time window: its number, start in seconds, task at its end, number of outputs, and accuracy."""

    number: int
    start: float
    task: str
    outputs: int
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """A change of task.

    Attributes
    ----------
    at : time in seconds from the start
    task : the new task
    before, after : accuracy of the last window before and the first window after the change; None without outputs
    recovery : seconds until a window is as accurate as the window before the change, or None
    """

    at: float
    task: str
    before: float | None
    after: float | None
    recovery: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationReport(ShowsFields):
    """Result of `AdaptationTracker.report`.

    Attributes
    ----------
    model, mode : names passed to the tracker
    windows : in order of time
    changes : changes of the task, in order of time
    accuracy : mean of the windows that have outputs
    outputs : number of all outputs, including those after the last window
    outputs_per_second : outputs over the time of all windows
    """

    model: str
    mode: str
    windows: tuple[AccuracyWindow, ...]
    changes: tuple[TaskChange, ...]
    accuracy: float
    outputs: int
    outputs_per_second: float


class AdaptationTracker:
    """Counts right outputs in windows of equal length.

    Parameters
    ----------
    duration : seconds of the whole experiment
    windows : number of windows
    task : the first task
    model, mode : names for the report
    clock : returns seconds; only the difference to the first call counts
    """

    def __init__(
        self,
        duration: float,
        windows: int,
        *,
        task: str = "",
        model: str = "",
        mode: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not duration > 0 or windows < 1:
            raise SpecError(f"got {windows} windows in {duration} seconds", hint="both must be above 0")
        self._length = duration / windows
        self._counts = [0] * windows
        self._right = [0] * windows
        self._late = 0
        self._changes = [(0.0, task)]
        self._names = (model, mode)
        self._clock = clock
        self._began = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the tracker was created."""
        return self._clock() - self._began

    def record(self, correct: bool) -> None:
        """Count one output. After the last window only the total number of outputs is counted."""
        at = int(self.elapsed // self._length)
        if at >= len(self._counts):
            self._late += 1
            return
        self._counts[at] += 1
        self._right[at] += bool(correct)

    def change(self, task: str) -> None:
        """Start another task now."""
        self._changes.append((self.elapsed, task))

    def report(self) -> AdaptationReport:
        """Return the report of all outputs so far."""
        windows = tuple(
            AccuracyWindow(
                number=i,
                start=i * self._length,
                task=self._task((i + 1) * self._length),
                outputs=count,
                accuracy=right / count if count else 0.0,
            )
            for i, (count, right) in enumerate(zip(self._counts, self._right, strict=True))
        )
        filled = [w.accuracy for w in windows if w.outputs]
        total = sum(self._counts)
        model, mode = self._names
        return AdaptationReport(
            model=model,
            mode=mode,
            windows=windows,
            changes=tuple(self._change(at, task, windows) for at, task in self._changes[1:]),
            accuracy=sum(filled) / len(filled) if filled else 0.0,
            outputs=total + self._late,
            outputs_per_second=total / (self._length * len(windows)),
        )

    def _task(self, end: float) -> str:
        return next(task for at, task in reversed(self._changes) if at < end)

    def _change(self, at: float, task: str, windows: tuple[AccuracyWindow, ...]) -> TaskChange:
        """Evaluate a change by the windows that are entirely before or after it."""
        earlier = [w for w in windows if w.start + self._length <= at and w.outputs]
        later = [w for w in windows if w.start >= at and w.outputs]
        before = earlier[-1].accuracy if earlier else None
        recovered = [w for w in later if before is not None and w.accuracy >= before]
        return TaskChange(
            at=at,
            task=task,
            before=before,
            after=later[0].accuracy if later else None,
            recovery=recovered[0].start - at if recovered else None,
        )
