"""Profiles of calls: the time of each kind of step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WHOLE = "all"
"""Label of the whole call, measured at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of all steps of one kind in a call.

    Attributes
    ----------
    label : operation, format and sizes; `WHOLE` for the whole call
    count : number of steps of this kind
    seconds : total of these steps
    """

    label: str
    count: int
    seconds: float


def by_label(steps: Iterable[tuple[str, float]]) -> list[StepTime]:
    """Sum single steps by label, in order of first occurrence."""
    times_by_label: dict[str, list[float]] = {}
    for label, seconds in steps:
        times_by_label.setdefault(label, []).append(seconds)
    return [StepTime(label=label, count=len(times), seconds=sum(times)) for label, times in times_by_label.items()]
