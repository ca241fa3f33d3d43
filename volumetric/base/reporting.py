"""Reporters: receivers of the events of a training or evolution run, and conversion of arguments to reporters.

Events are frozen dataclasses with two class attributes: ``event``, the name of their kind, and ``detail``, their level
of detail: 0 for events once per run, such as its end, 1 for an epoch or a generation, 2 for events within one.
``str(event)`` is a line of text for people. An event whose class has ``on_request = True`` goes only to reporters
whose attribute `requests` names it, because it takes time or space.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, Self, TextIO, TypeAlias, TypeVar

import numpy as np

from volumetric.base.config_tables import build_from_registry
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.base.registry import Registry

E_contra = TypeVar("E_contra", contravariant=True)


class RunEvent(Protocol):
    """An event of a run."""

    event: ClassVar[str]
    detail: ClassVar[int]


class Reporter(Protocol[E_contra]):
    """Receives the events of a run. `start` is called first and `close` last, even if the run fails.

    It may also have a method ``end_epoch(state)``, which training calls at the end of every epoch with the weights and
    samples that it may ask for (`volumetric.train.epoch_end.EpochEnd`).
    """

    def start(self, step: int, epoch: int) -> None:
        """Start after `step` updates, in `epoch`; events that an interrupted run reported beyond `step` come again.

        Evolution passes the number of evaluated generations as both.
        """
        ...

    def report(self, event: E_contra, /) -> None:
        """Receive one event."""
        ...

    def close(self) -> None:
        """Finish, whether the run succeeded or not."""
        ...


AnyReporter: TypeAlias = "Reporter[E_contra] | Callable[[E_contra], object] | str | Mapping[str, Any]"
"""Reporter types accepted by a run: a reporter, with or without `start` and `close`, or a function such as `print`; or
the name of a registered one, or a table with its name under ``kind`` and its options, as in files."""

REPORTERS: Registry[Callable[..., Any]] = Registry(group="volumetric.reporters")
"""Name → factory of a reporter from its options."""
R = TypeVar("R", bound=Callable[..., Any])


def reporter(name: str) -> Callable[[R], R]:
    """Register a class of reporters, or a function of one event, under a name.

    ``reporters = ["name"]`` in files for ``train`` and ``evolve`` and in Python adds it to a run. The arguments of the
    class are the options of ``{ kind = "name", … }``.

    Examples
    --------
    >>> @reporter("bell")
    ... class Bell:
    ...     def report(self, event):
    ...         if event.event == "end":
    ...             print("done")
    """

    def declare(of: Any) -> Any:
        REPORTERS.declare(name, of if inspect.isclass(of) else lambda: of, of.__module__)
        return of

    return declare


class _ReporterAdapter:
    """Wraps a function, or an object with `report`, as a complete reporter."""

    def __init__(self, reporter: Any) -> None:
        self.report = getattr(reporter, "report", reporter)
        self._start, self._close = getattr(reporter, "start", None), getattr(reporter, "close", None)
        self.requests: Iterable[str] = getattr(reporter, "requests", ())
        self.end_epoch: Callable[[Any], object] | None = getattr(reporter, "end_epoch", None)

    def start(self, step: int, epoch: int) -> None:
        """Call the reporter's `start` if it has one."""
        if self._start is not None:
            self._start(step, epoch)

    def close(self) -> None:
        """Call the reporter's `close` if it has one."""
        if self._close is not None:
            self._close()


class StartedReporters:
    """Passes an event to every reporter that takes it.

    Attributes
    ----------
    requests : names of the events on request that a reporter takes
    """

    def __init__(self, reporters: list[Reporter[Any]]) -> None:
        self._takers = [(reporter, frozenset[str](getattr(reporter, "requests", ()))) for reporter in reporters]
        self.requests: frozenset[str] = frozenset[str]().union(*(requests for _, requests in self._takers))

    def __call__(self, event: Any) -> None:
        """Pass an event on."""
        always = not getattr(event, "on_request", False)
        takers = [reporter for reporter, requests in self._takers if always or event.event in requests]
        call_each(takers, lambda reporter: reporter.report(event))


def reporters_of(reporters: Iterable[AnyReporter[Any]]) -> list[Reporter[Any]]:
    """Return the reporters passed to a run as complete reporters.

    Raises
    ------
    SpecError
        An entry is neither a function nor an object with a method `report`; or `reporters` is not a collection.
    """
    if (
        callable(reporters)
        or hasattr(reporters, "report")
        or isinstance(reporters, (str, bytes))
        or not hasattr(reporters, "__iter__")
    ):
        raise SpecError(f"reporters is {_reporter_text(reporters)}", hint="pass a list, as reporters=[print]")
    listed: list[Any] = list(reporters)
    for i, one in enumerate(listed):
        if isinstance(one, str | Mapping):
            kind = one if isinstance(one, str) else one.get("kind")
            if kind not in REPORTERS:
                raise SpecError(
                    f"reporters[{i}] is {kind!r:.60}, which names no reporter",
                    hint=suggestion(kind, REPORTERS, "pass a function of one event, or an object with report(event); "
                                    "@volumetric.reporter gives one a name"),
                )  # fmt: skip
            listed[i] = build_from_registry(REPORTERS, one, f"reporters[{i}]")
            continue
        if isinstance(one, type):
            raise SpecError(f"reporters[{i}] is the class {one.__name__}", hint=f"pass an instance: {one.__name__}(…)")
        if not callable(getattr(one, "report", one)):
            raise SpecError(
                f"reporters[{i}] is {_reporter_text(one)}, which cannot take events",
                hint="pass a function of one event, as print, or an object with report(event), and with start(step, "
                "epoch) and close() if it needs them",
            )
    return [_ReporterAdapter(one) for one in listed]


def _reporter_text(value: object) -> str:
    return f"{value!r:.60}" if value is None or isinstance(value, (str, bytes)) else f"of type {type(value).__name__}"


@contextmanager
def started_reporters(reporters: Iterable[AnyReporter[Any]], step: int, epoch: int) -> Iterator[StartedReporters]:
    """Start reporters, yield a function that passes an event to all of them, and close them in any case.

    Raises
    ------
    SpecError
        As for `reporters_of`.
    """
    adapted = reporters_of(reporters)
    try:
        call_each(adapted, lambda reporter: reporter.start(step, epoch))
        yield StartedReporters(adapted)
    finally:
        call_each(adapted, lambda reporter: reporter.close())


def call_each(reporters: Iterable[Reporter[Any]], call: Callable[[Reporter[Any]], object]) -> None:
    """Call every reporter, even if an earlier call fails; raise the first failure at the end."""
    failure: Exception | None = None
    for reporter in reporters:
        try:
            call(reporter)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


class ConsoleReporter:
    """Prints events, one line each.

    Parameters
    ----------
    detail : level of detail: 0 only the end, 1 every epoch or generation, 2 every update, species and failure
    seconds : minimum time between lines of one kind; the last line is always shown
    stream : output stream; None: stderr
    """

    def __init__(self, detail: int = 1, *, seconds: float = 0.0, stream: TextIO | None = None) -> None:
        self._detail, self._seconds, self._stream = detail, seconds, stream
        self._shown: dict[str, float] = {}
        self._pending: dict[str, RunEvent] = {}

    def start(self, step: int, epoch: int) -> None:
        """Forget when lines were printed."""
        self._shown.clear()

    def report(self, event: RunEvent, /) -> None:
        """Print an event, or hold it back if another of its kind was just printed."""
        if event.detail > self._detail:
            return
        now = time.monotonic()
        if event.detail and now - self._shown.get(event.event, -math.inf) < self._seconds:
            self._pending[event.event] = event
            return
        if not event.detail:
            self.close()
        self._shown[event.event] = now
        self._pending.pop(event.event, None)
        self._print(event)

    def close(self) -> None:
        """Print the events held back."""
        pending, self._pending = self._pending, {}
        for event in pending.values():
            self._print(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _print(self, event: RunEvent) -> None:
        print(event, file=self._stream or sys.stderr, flush=True)


def event_fields(event: Any) -> dict[str, Any]:
    """Return an event as plain data: arrays become lists, and numbers that are not finite, which JSON has not, text."""
    return {"event": event.event, **{key: event_number(value) for key, value in dataclasses.asdict(event).items()}}


def event_number(value: Any) -> Any:
    """Return a value of an event as plain data: lists for an array, text for a number that is not finite."""
    if isinstance(value, np.ndarray):
        listed = value.tolist()
        return listed if np.isfinite(value).all() else [event_number(one) for one in listed]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
