"""Clocks: expressions for when something computes, step by step, combined with ``&``, ``|`` and ``~``.

Layers of a clocked network, and regions and edges of a program, use the same clocks. Each stream has separate clocks.
No counter is unbounded: a clock stores the number of remaining steps, which float32 represents exactly (`LONGEST`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from volumetric.base.errors import SpecError

LONGEST = 2**24
"""Maximum steps that a clock counts."""
DEEPEST = 64
"""Maximum depth of nested clocks."""


class Clock:
    """When something fires.

    ``a & b`` fires if both fire, ``a | b`` if one fires, ``~a`` if a does not fire.
    """

    def __and__(self, other: Clock) -> Clock:
        """Fire if both fire."""
        return And((self, other)) if isinstance(other, Clock) else NotImplemented

    def __or__(self, other: Clock) -> Clock:
        """Fire if one fires."""
        return Or((self, other)) if isinstance(other, Clock) else NotImplemented

    def __invert__(self) -> Clock:
        """Fire if this clock does not."""
        return Not(self)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        from volumetric.layers.clock_text import text_of

        return text_of(self)

    @staticmethod
    def parse(text: str) -> Clock:
        """Parse the text of a clock.

        ``or := and ("||" and)*``, ``and := not ("&&" not)*``, ``not := "!"? atom``, an atom being ``( or )``, a
        comparison as ``err.prediction > 0.5`` or ``0.1 < err.prediction < 0.5``, or one of ``every(n)``,
        ``every(n, phase)``, ``on(name)``, ``cooldown(or, n)``, ``silence(or, n)``, ``inner(or, n)``. Names with
        characters other than letters, digits and ``_ - . : / [ ]`` are quoted in double quotes, as in JSON.

        Raises
        ------
        SpecError : a syntax error; the message points at its position
        """
        from volumetric.layers.clock_text import parse

        return parse(text)

    @property
    def parts(self) -> tuple[Clock, ...]:
        """Operands of this clock."""
        return ()

    def walk(self) -> Iterator[Clock]:
        """Yield this clock and all nested clocks, in preorder."""
        yield self
        for part in self.parts:
            yield from part.walk()


class _WrappedClock(Clock):
    """A clock with operands."""

    def _check(self) -> None:
        for part in self.parts:
            if not isinstance(part, Clock):
                raise SpecError(f"clock: expected clocks to combine, got {part!r}")
            if isinstance(part, Inner):
                raise SpecError(
                    "clock: inner cannot be nested in another clock",
                    hint="put it around the whole clock: inner(…, n)",
                )
        if self.depth > DEEPEST:
            raise SpecError(f"clock: more than {DEEPEST} nested clocks", hint="use fewer")

    @cached_property
    def depth(self) -> int:
        """Depth of nesting."""
        return 1 + max((part.depth if isinstance(part, _WrappedClock) else 1 for part in self.parts), default=0)


@dataclass(frozen=True)
class Every(Clock):
    """Fires at each `period`-th step of its stream, the first time at step `phase`."""

    period: int
    phase: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if not _is_whole_number(self.period) or not 1 <= self.period <= LONGEST:
            raise SpecError(
                f"every: the period must be 1 … {LONGEST} steps, got {self.period!r}",
                hint="every(1) fires at each step",
            )
        if not _is_whole_number(self.phase) or not 0 <= self.phase < self.period:
            raise SpecError(f"every: the phase must be in 0 … {self.period - 1}, got {self.phase!r}")


@dataclass(frozen=True)
class Event(Clock):
    """Fires if an observed value is in a range. NaN is in no range, and is unequal to every number.

    Attributes
    ----------
    source : the observed value, ``"what.kind"``, split at the last dot: for a program the meter of a region,
        ``"err.prediction"``; for a clocked network the ``mean``, ``max``, ``min`` or ``rms`` of a layer, an output or
        an input, ``"1.0.0.0.rms"``
    above, at_least : exclusive or inclusive lower bound
    below, at_most : exclusive or inclusive upper bound
    equal, unequal : fires for this number only, or for all others; excludes all bounds

    Raises
    ------
    SpecError : there is no bound, there are two on one side, or a bound is not finite
    """

    source: str
    above: float | None = None
    below: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    equal: float | None = None
    unequal: float | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        what, dot, kind = self.source.rpartition(".") if isinstance(self.source, str) else ("", "", "")
        if not (what and dot and kind):
            raise SpecError(
                f"event: expected a source, got {self.source!r}", hint='what.kind, such as "err.prediction"'
            )
        for name in ("above", "below", "at_least", "at_most", "equal", "unequal"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise SpecError(f"event: {name} must be a finite number, got {value!r}")
            object.__setattr__(self, name, float(value))
        lower, upper = (
            sum(value is not None for value in side)
            for side in ((self.above, self.at_least), (self.below, self.at_most))
        )
        alone = sum(value is not None for value in (self.equal, self.unequal))
        if lower > 1 or upper > 1 or alone > 1 or (alone and lower + upper):
            raise SpecError(
                f"event: {self.source} has conflicting bounds",
                hint="set one lower bound, one upper bound, or only equal or unequal",
            )
        if not lower + upper + alone:
            raise SpecError(f"event: {self.source} has no bound", hint="Event(…, above=0.5)")

    @property
    def watched_name(self) -> str:
        """Name of the observed thing."""
        return self.source.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """Name of the observed value of that thing."""
        return self.source.rpartition(".")[2]


@dataclass(frozen=True)
class On(Clock):
    """Fires on an external event.

    Attributes
    ----------
    name : an input: the event happens at a step in which the row of the input is not all zeros
    """

    name: str

    def __post_init__(self) -> None:
        """Check the field."""
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"on: expected a name, got {self.name!r}")


@dataclass(frozen=True)
class _CombinedClock(_WrappedClock):
    terms: tuple[Clock, ...]

    def __post_init__(self) -> None:
        """Flatten nested terms of the same kind, so that equivalent clocks compare equal."""
        flat: list[Clock] = []
        for term in self.terms:
            flat += term.terms if type(term) is type(self) else (term,)
        object.__setattr__(self, "terms", tuple(flat))
        if len(flat) < 2:
            raise SpecError(f"clock: expected two or more clocks to combine, got {len(flat)}")
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return self.terms


class And(_CombinedClock):
    """Fires if all terms fire: ``a & b``."""


class Or(_CombinedClock):
    """Fires if one term fires: ``a | b``."""


@dataclass(frozen=True)
class Not(_WrappedClock):
    """Fires if `term` does not: ``~a``."""

    term: Clock

    def __post_init__(self) -> None:
        """Check the field."""
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return (self.term,)


@dataclass(frozen=True)
class _Counting(_WrappedClock):
    clock: Clock
    steps: int
    word: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the fields."""
        if not _is_whole_number(self.steps) or not 1 <= self.steps <= LONGEST:
            raise SpecError(f"{self.word}: the steps must be 1 … {LONGEST}, got {self.steps!r}")
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return (self.clock,)


class Cooldown(_Counting):
    """Fires if `clock` fires, and then not for `steps` steps.

    A suppressed event has not fired: a silence in it continues.
    """

    word: ClassVar[str] = "cooldown"


class MaxSilence(_Counting):
    """Fires if `clock` fires, and if it has not fired for `steps` steps; also at the first step."""

    word: ClassVar[str] = "silence"


class Inner(_Counting):
    """Fires if `clock` fires, and then computes `steps` more times within the same step of its program."""

    word: ClassVar[str] = "inner"


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
