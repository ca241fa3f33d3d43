"""Where the time of a call goes: what every device that can tell reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WHOLE = "all"
"""Label of the whole call, measured in one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of all steps of one kind in a call.

    Attributes
    ----------
    label : what the step does, on what format and sizes; `WHOLE` for the whole call
    count : steps of this kind
    seconds : all of them together
    """

    label: str
    count: int
    seconds: float


def by_label(steps: Iterable[tuple[str, float]]) -> list[StepTime]:
    """Add up single steps of the same label, in the order of their first."""
    times_by_label: dict[str, list[float]] = {}
    for label, seconds in steps:
        times_by_label.setdefault(label, []).append(seconds)
    return [StepTime(label=label, count=len(times), seconds=sum(times)) for label, times in times_by_label.items()]
