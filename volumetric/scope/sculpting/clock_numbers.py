"""Clocks of a sculpted network: the numbers in them, and the clock that never fires."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.layers.clock import And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, Or

NEVER: Final = Not(Every(1))
"""A clock that never fires."""
_BOUNDS: Final = {"above": ">", "at_least": "≥", "below": "<", "at_most": "≤", "equal": "=", "unequal": "≠"}
_COUNTS: Final = {Cooldown: "cooldown", MaxSilence: "longest silence", Inner: "inner steps"}


def clock_numbers(clock: Clock) -> list[tuple[str, float]]:
    """Return name and value of each number in a clock: periods, phases, thresholds and counts of steps, in order."""
    numbers: list[tuple[str, float]] = []
    for part in clock.walk():
        match part:
            case Every():
                numbers += [("period", part.period), ("phase", part.phase)]
            case Event():
                bounds = ((name, getattr(part, name)) for name in _BOUNDS)
                numbers += [(f"{part.source} {_BOUNDS[name]}", value) for name, value in bounds if value is not None]
            case Cooldown() | MaxSilence() | Inner():
                numbers.append((_COUNTS[type(part)], part.steps))
            case _:
                pass
    return numbers


def with_clock_number(clock: Clock, number: int, value: float) -> Clock:
    """Return a clock with one of its numbers replaced; `number` counts as in `clock_numbers`.

    Raises
    ------
    SpecError : there is no such number, or the clock cannot have the value
    """
    count = len(clock_numbers(clock))
    if not 0 <= number < count:
        raise SpecError(f"the clock {clock} has no number {number}", hint=f"it has {count}, counted from 0")
    left = number

    def change(part: Clock) -> Clock:
        nonlocal left
        match part:
            case Every():
                names = ("period", "phase")
            case Event():
                names = tuple(name for name in _BOUNDS if getattr(part, name) is not None)
            case Cooldown() | MaxSilence() | Inner():
                names = ("steps",)
            case _:
                names = ()
        if 0 <= left < len(names):
            name = names[left]
            part = replace(part, **{name: value if isinstance(part, Event) else _whole(value, name)})  # pyright: ignore[reportArgumentType]  (every clock is a dataclass)
        left -= len(names)
        match part:
            case Not():
                return Not(change(part.term))
            case And() | Or():
                return type(part)(tuple(map(change, part.terms)))
            case Cooldown() | MaxSilence() | Inner():
                return replace(part, clock=change(part.clock))
            case _:
                return part

    return change(clock)


def _whole(value: float, name: str) -> int:
    if value != int(value):
        raise SpecError(f"a {name} of a clock is a whole number, got {value:g}")
    return int(value)
