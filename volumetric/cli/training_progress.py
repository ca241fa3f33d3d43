"""How far training is: a bar with the time left on a terminal, else a line for each epoch."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from volumetric.cli import console
from volumetric.train import ArrayData, EpochEvent, Event, StepEvent, TrainConfig

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def updates_of(data: ArrayData, config: TrainConfig) -> int:
    """Return how many updates a whole run makes at most."""
    total = -(-data.batches_per_epoch // config.accumulate) * config.epochs
    return total if config.max_steps is None else min(total, config.max_steps)


def clock(seconds: float) -> str:
    """Format a time: ``"1:02:03"``, ``"2:03"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class TrainingProgress:
    """Reports to stderr.

    Parameters
    ----------
    total : updates of the whole run
    live : draw a bar (None: if stderr is a terminal and ``--quiet`` was not given)
    """

    def __init__(self, total: int, *, live: bool | None = None) -> None:
        notes = logging.getLogger(f"{console.__name__}.notes")
        self._live = sys.stderr.isatty() and notes.isEnabledFor(logging.INFO) if live is None else live
        self._total = total
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began, self._first = 0.0, 0

    def start(self, step: int, epoch: int) -> None:
        """Begin at an update, which is above 0 where a run is resumed."""
        self._began, self._first = time.monotonic(), step
        if step:
            console.note(f"resumed after update {step}, in epoch {epoch}")
        if not self._live:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Left

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Left())
        self._bar = Progress(*columns, console=Console(stderr=True, force_terminal=True), transient=True)
        self._task = self._bar.add_task("training", total=self._total, completed=step)
        self._bar.start()

    def report(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, StepEvent) and self._bar is not None and self._task is not None:
            text = f"epoch {event.epoch}  loss {event.loss:.4g}"
            self._bar.update(self._task, completed=event.step, description=text)
        elif isinstance(event, EpochEvent):
            console.note(self._line(event))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, event: EpochEvent) -> str:
        held = "" if event.validation_loss is None else f", validation {event.validation_loss:.4g}"
        best = " (best)" if event.improved else ""
        made = event.step - self._first
        left = (time.monotonic() - self._began) / made * max(0, self._total - event.step) if made else 0.0
        return f"epoch {event.epoch}: loss {event.loss:.4g}{held}{best}, {clock(left)} left"
