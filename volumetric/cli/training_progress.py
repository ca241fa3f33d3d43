"""Progress of training: a bar with the time left on a terminal, else a line for each epoch."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from volumetric.base.progress import clock
from volumetric.cli import console
from volumetric.clocked import Clocked
from volumetric.train import ArrayData, EpochEvent, Event, StepEvent, Systolic, TargetPropagation, TrainConfig
from volumetric.train.clocked_sequences import windows_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


_LINES, _QUIET = 10, 10.0


def updates_of(data: ArrayData, config: TrainConfig, machine: Clocked | None = None) -> tuple[int, int]:
    """Return the most updates of a run, and the updates of an epoch."""
    each = -(-data.batches_per_epoch // config.accumulate)
    if machine is not None and isinstance(config.mode, Systolic | TargetPropagation):
        each *= windows_of(machine, config.mode, config.losses, data.features.shape[1])
    total = each * config.epochs
    return total if config.max_steps is None else min(total, config.max_steps), each


class TrainingProgress:
    """Reports progress to stderr.

    Without a terminal each epoch is a line. If epochs are longer than a tenth of the run, each tenth is a line, too,
    and so is the first update `_QUIET` seconds after the last line.

    Parameters
    ----------
    total, each : updates of the whole run, and of an epoch
    live : draw a bar; None: if stderr is a terminal, without ``--quiet``
    """

    def __init__(self, total: int, each: int = 1, *, live: bool | None = None) -> None:
        notes = logging.getLogger(f"{console.__name__}.notes")
        self._live = sys.stderr.isatty() and notes.isEnabledFor(logging.INFO) if live is None else live
        self._total = total
        tenth = max(1, total // _LINES)
        self._stride = tenth if each > tenth else 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said = 0.0
        self._second: tuple[float, int] | None = None
        """Time after the first update, which compiles kernels, and the number of updates then."""

    def start(self, step: int, epoch: int) -> None:
        """Begin at an update, above 0 for a resumed run."""
        self._said, self._second = time.monotonic(), None
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
        if isinstance(event, StepEvent) and self._second is None:
            self._second = time.monotonic(), event.step
        if isinstance(event, StepEvent) and self._bar is not None and self._task is not None:
            text = f"epoch {event.epoch}  loss {event.loss:.4g}"
            self._bar.update(self._task, completed=event.step, description=text)
        elif isinstance(event, StepEvent) and not self._live:
            tenth = self._stride and event.step % self._stride == 0
            if tenth or time.monotonic() - self._said > _QUIET:
                self._say(f"update {event.step} of {self._total}: loss {event.loss:.4g}", event.step)
        elif isinstance(event, EpochEvent):
            self._say(self._line(event), event.step)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _line(self, event: EpochEvent) -> str:
        validation = "" if event.validation_loss is None else f", validation {event.validation_loss:.4g}"
        best = " (best)" if event.improved else ""
        right = "" if event.accuracy is None else f", accuracy {event.accuracy:.2%}"
        return f"epoch {event.epoch}: loss {event.loss:.4g}{validation}{best}{right}"

    def _say(self, line: str, step: int) -> None:
        self._said = time.monotonic()
        began, first = self._second or (self._said, step)
        if step > first:
            line += f", {clock((self._said - began) / (step - first) * max(0, self._total - step))} left"
        elif step >= self._total:
            line += f", {clock(0)} left"
        console.note(line)
