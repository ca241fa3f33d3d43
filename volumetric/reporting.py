"""Reporters: who is told what happens in a run, be it of training or of evolution, and what a run is given as such."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from volumetric.errors import SpecError

E_contra = TypeVar("E_contra", contravariant=True)


class Reporter(Protocol[E_contra]):
    """Takes the events of a run. `start` comes first, `close` last, also where the run fails."""

    def start(self, step: int, epoch: int) -> None:
        """Begin after `step` updates, in `epoch`: what an interrupted run reported beyond that will come again.

        Evolution counts its generations as both.
        """
        ...

    def report(self, event: E_contra) -> None:
        """Take one event."""
        ...

    def close(self) -> None:
        """Finish, whether the run succeeded or not."""
        ...


AnyReporter: TypeAlias = Reporter[E_contra] | Callable[[E_contra], object]
"""What a run takes: a reporter, also one that lacks `start` or `close`, or a function of one event, such as `print`."""


class _Adapted:
    """A function, or an object with `report`, as a whole reporter."""

    def __init__(self, given: Any) -> None:
        self.report = getattr(given, "report", given)
        self._start, self._close = getattr(given, "start", None), getattr(given, "close", None)

    def start(self, step: int, epoch: int) -> None:
        if self._start is not None:
            self._start(step, epoch)

    def close(self) -> None:
        if self._close is not None:
            self._close()


def reporters_of(given: Iterable[AnyReporter[Any]]) -> list[Reporter[Any]]:
    """Return what a run was given as whole reporters.

    Raises
    ------
    SpecError
        One is neither an object with a method `report` nor a function; or `given` is no collection of them.
    """
    if callable(given) or hasattr(given, "report") or isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise SpecError(f"reporters is {_shown(given)}", hint="pass a list, as reporters=[print]")
    made = list(given)
    for i, one in enumerate(made):
        if isinstance(one, type):
            raise SpecError(f"reporters[{i}] is the class {one.__name__}", hint=f"make one: {one.__name__}(…)")
        if not callable(getattr(one, "report", one)):
            raise SpecError(
                f"reporters[{i}] is {_shown(one)}, which cannot take events",
                hint="pass a function of one event, as print, or an object with report(event), and with start(step, "
                "epoch) and close() if it needs them",
            )
    return [_Adapted(one) for one in made]


def _shown(given: object) -> str:
    return f"{given!r:.60}" if given is None or isinstance(given, (str, bytes)) else f"of type {type(given).__name__}"


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
