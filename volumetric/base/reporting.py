"""Reporters: who is told what happens in a run, be it of training or of evolution, and what a run is given as such.

Events are frozen dataclasses with two class attributes: ``event``, the name of their kind, and ``detail``, how much in
detail they go: 0 for what happens once, as the end of a run, 1 for an epoch or a generation, 2 for what is within one.
``str(event)`` is a line for people.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, Self, TextIO, TypeAlias, TypeVar

from volumetric.base.errors import SpecError

E_contra = TypeVar("E_contra", contravariant=True)


class Event(Protocol):
    """Something that happened in a run."""

    event: ClassVar[str]
    detail: ClassVar[int]


class Reporter(Protocol[E_contra]):
    """Takes the events of a run. `start` comes first, `close` last, also where the run fails."""

    def start(self, step: int, epoch: int) -> None:
        """Begin after `step` updates, in `epoch`: what an interrupted run reported beyond that will come again.

        Evolution counts generations as both: so many have been evaluated.
        """
        ...

    def report(self, event: E_contra, /) -> None:
        """Take one event."""
        ...

    def close(self) -> None:
        """Finish, whether the run succeeded or not."""
        ...


AnyReporter: TypeAlias = Reporter[E_contra] | Callable[[E_contra], object]
"""What a run takes: a reporter, also one that lacks `start` or `close`, or a function of one event, such as `print`."""


class _Adapted:
    """A function, or an object with `report`, as a whole reporter."""

    def __init__(self, reporter: Any) -> None:
        self.report = getattr(reporter, "report", reporter)
        self._start, self._close = getattr(reporter, "start", None), getattr(reporter, "close", None)

    def start(self, step: int, epoch: int) -> None:
        """Start the reporter, if it can be."""
        if self._start is not None:
            self._start(step, epoch)

    def close(self) -> None:
        """Close the reporter, if it can be."""
        if self._close is not None:
            self._close()


def reporters_of(reporters: Iterable[AnyReporter[Any]]) -> list[Reporter[Any]]:
    """Return what a run was given as whole reporters.

    Raises
    ------
    SpecError
        One is neither an object with a method `report` nor a function; or `reporters` is no collection of them.
    """
    if (
        callable(reporters)
        or hasattr(reporters, "report")
        or isinstance(reporters, (str, bytes))
        or not hasattr(reporters, "__iter__")
    ):
        raise SpecError(f"reporters is {_shown(reporters)}", hint="pass a list, as reporters=[print]")
    listed = list(reporters)
    for i, one in enumerate(listed):
        if isinstance(one, type):
            raise SpecError(f"reporters[{i}] is the class {one.__name__}", hint=f"make one: {one.__name__}(…)")
        if not callable(getattr(one, "report", one)):
            raise SpecError(
                f"reporters[{i}] is {_shown(one)}, which cannot take events",
                hint="pass a function of one event, as print, or an object with report(event), and with start(step, "
                "epoch) and close() if it needs them",
            )
    return [_Adapted(one) for one in listed]


def _shown(value: object) -> str:
    return f"{value!r:.60}" if value is None or isinstance(value, (str, bytes)) else f"of type {type(value).__name__}"


@contextmanager
def telling(reporters: Iterable[AnyReporter[Any]], step: int, epoch: int) -> Iterator[Callable[[Any], None]]:
    """Start reporters, give a function that tells all of them of an event, and close them whatever happens.

    Raises
    ------
    SpecError
        As for `reporters_of`.
    """
    adapted = reporters_of(reporters)
    try:
        each(adapted, lambda reporter: reporter.start(step, epoch))
        yield lambda event: each(adapted, lambda reporter: reporter.report(event))
    finally:
        each(adapted, lambda reporter: reporter.close())


def each(reporters: Iterable[Reporter[Any]], call: Callable[[Reporter[Any]], object]) -> None:
    """Call every reporter, the later ones too where one fails; the first failure is raised at the end."""
    failure: Exception | None = None
    for reporter in reporters:
        try:
            call(reporter)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


class ConsoleReporter:
    """Prints what happens, a line for each event.

    Parameters
    ----------
    detail : how much in detail: 0 the end alone, 1 every epoch or generation, 2 every update, species and failure
    seconds : from one line to the next of the same kind, at least; the last one is shown in any case
    stream : where to; None: stderr
    """

    def __init__(self, detail: int = 1, *, seconds: float = 0.0, stream: TextIO | None = None) -> None:
        self._detail, self._seconds, self._stream = detail, seconds, stream
        self._shown: dict[str, float] = {}
        self._held: dict[str, Event] = {}

    def start(self, step: int, epoch: int) -> None:
        """Forget when lines were shown."""
        self._shown.clear()

    def report(self, event: Event, /) -> None:
        """Print an event, or keep it while another of its kind has just been shown."""
        if event.detail > self._detail:
            return
        now = time.monotonic()
        if event.detail and now - self._shown.get(event.event, -math.inf) < self._seconds:
            self._held[event.event] = event
            return
        if not event.detail:
            self.close()
        self._shown[event.event] = now
        self._held.pop(event.event, None)
        self._print(event)

    def close(self) -> None:
        """Print what was kept."""
        pending, self._held = self._held, {}
        for event in pending.values():
            self._print(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _print(self, event: Event) -> None:
        print(event, file=self._stream or sys.stderr, flush=True)


def record(event: Any) -> dict[str, Any]:
    """Return an event as plain data; numbers that are not finite, which JSON cannot hold, as text."""

    def plain(value: Any) -> Any:
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return {"event": event.event, **{key: plain(value) for key, value in dataclasses.asdict(event).items()}}
