"""Clocks and triggers of canvas-engineering as text, and back."""

from __future__ import annotations

import math
import re
from typing import Any, Protocol

from volumetric.layers.clock import Clock, Cooldown, Event, Every, Inner, MaxSilence, On
from volumetric.program.canvas_file import ClockFields

NEVER = "!every(1)"
ALWAYS = "every(1)"
_CLAUSE = re.compile(r"\s*(\S(?:.*\S)?)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*", re.DOTALL)


class Names(Protocol):
    """What clocks of a file speak of."""

    def watched(self, path: str) -> str | None:
        """Return ``region.kind`` by the names of now, None if nothing measures it."""
        ...

    def event(self, name: str) -> str:
        """Return the name of an event."""
        ...


def clock_of(clock: ClockFields, names: Names) -> str | None:
    """Return the text of a clock; None: it fires always.

    The package asks for the cooldown first, then for silence, then for the rule. A cooldown of n keeps it still for
    n - 1 steps there, and what nothing measures is 0.
    """
    text = _rule(clock, names)
    if clock.max_silence is not None:
        text = f"silence({text}, {max(clock.max_silence, 1)})"
    if clock.cooldown > 1:
        text = f"cooldown({text}, {clock.cooldown - 1})"
    if clock.domain == "internal" and (clock.max_inner_steps or 0) > 0:
        text = f"inner({text}, {clock.max_inner_steps})"
    return None if text == ALWAYS else text


def trigger_of(trigger: str | None, names: Names) -> str | None:
    """Return the text of a trigger; None: it holds always.

    It has clauses ``region.kind OP number``, joined by ``&&``. One that is malformed or about what nothing measures
    never holds.
    """
    if trigger is None or not trigger.strip():
        return None
    clauses = [_clause(clause, names) for clause in trigger.split("&&")]
    return NEVER if None in clauses else " && ".join(map(str, clauses))


def _clause(clause: str, names: Names) -> str | None:
    match = _CLAUSE.fullmatch(clause)
    number = None if match is None else _number(match[3])
    if match is None or number is None:
        return None
    source = names.watched(match[1])
    return None if source is None else f"{source} {match[2]} {number}"


def _rule(clock: ClockFields, names: Names) -> str:
    if clock.mode == "periodic":
        return f"every({max(clock.period, 1)})"
    if clock.mode == "on_event":
        threshold = _number(repr(clock.event_threshold))
        if clock.event_source is None or "." not in clock.event_source or threshold is None:
            return NEVER
        source = names.watched(clock.event_source)
        if source is None:
            return ALWAYS if clock.event_threshold < 0 else NEVER
        return f"{source} > {threshold}"
    if clock.mode == "boundary":
        return NEVER if clock.event_source is None else f"on({names.event(clock.event_source)})"
    return ALWAYS  # as the package does with a mode that it does not know


def _number(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def fields_of(clock: Clock) -> dict[str, Any] | None:
    """Return the fields of a clock of the package; None: it has no such clock."""
    found: dict[str, Any] = {}
    if isinstance(clock, Inner):
        found, clock = {"domain": "internal", "max_inner_steps": clock.steps}, clock.clock
    if isinstance(clock, Cooldown):
        found["cooldown"], clock = clock.steps + 1, clock.clock
    if isinstance(clock, MaxSilence):
        found["max_silence"], clock = clock.steps, clock.clock
    if isinstance(clock, Every) and not clock.phase:
        return found | ({} if clock.period == 1 else {"period": clock.period})
    if isinstance(clock, On):
        return found | {"mode": "boundary", "event_source": clock.name}
    if isinstance(clock, Event) and clock == Event(clock.source, above=clock.above if clock.above is not None else 0):
        return found | {"mode": "on_event", "event_source": clock.source, "event_threshold": clock.above}
    return found | {"mode": "on_event"} if str(clock) == NEVER else None
