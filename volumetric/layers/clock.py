"""Clocks: when something computes, step by step, as values that are combined with ``&``, ``|`` and ``~``.

One language for layers of a clocked network, regions and edges of a program. Each stream has its own clocks. Nothing
counts steps without end: what a clock keeps is how many are still to go, which float32 holds exactly (`LONGEST`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from volumetric.base.errors import SpecError

LONGEST = 2**24
"""Most steps that a clock counts."""
DEEPEST = 64
"""Most clocks inside of one another."""


class Clock:
    """When something fires.

    ``a & b`` fires where both do, ``a | b`` where one does, ``~a`` where a does not.
    """

    def __and__(self, other: Clock) -> Clock:
        """Fire where both do."""
        return And((self, other)) if isinstance(other, Clock) else NotImplemented

    def __or__(self, other: Clock) -> Clock:
        """Fire where one does."""
        return Or((self, other)) if isinstance(other, Clock) else NotImplemented

    def __invert__(self) -> Clock:
        """Fire where this does not."""
        return Not(self)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        from volumetric.layers.clock_text import text_of

        return text_of(self)

    @staticmethod
    def parse(text: str) -> Clock:
        """Read a clock that was written as text.

        ``or := and ("||" and)*``, ``and := not ("&&" not)*``, ``not := "!"? atom``, an atom being ``( or )``, a
        comparison as ``err.prediction > 0.5`` or ``0.1 < err.prediction < 0.5``, or one of ``every(n)``,
        ``every(n, phase)``, ``on(name)``, ``cooldown(or, n)``, ``silence(or, n)``, ``inner(or, n)``. Names with other
        characters than letters, digits and ``_ - . : / [ ]`` stand in double quotes, as in JSON.

        Raises
        ------
        SpecError : it is not one; the message points at the place
        """
        from volumetric.layers.clock_text import parse

        return parse(text)

    @property
    def parts(self) -> tuple[Clock, ...]:
        """Clocks that this one asks."""
        return ()

    def walk(self) -> Iterator[Clock]:
        """Yield this clock and all inside of it, each before those inside of it."""
        yield self
        for part in self.parts:
            yield from part.walk()


class _Around(Clock):
    """A clock that asks others."""

    def _check(self) -> None:
        for part in self.parts:
            if not isinstance(part, Clock):
                raise SpecError(f"clock: expected clocks to combine, got {part!r}")
            if isinstance(part, Inner):
                raise SpecError(
                    "clock: inner steps cannot be part of another clock",
                    hint="say them around the whole clock, inner(…, n)",
                )
        if self.deep > DEEPEST:
            raise SpecError(f"clock: more than {DEEPEST} clocks inside of one another", hint="say it with fewer")

    @cached_property
    def deep(self) -> int:
        """How many clocks are inside of one another."""
        return 1 + max((part.deep if isinstance(part, _Around) else 1 for part in self.parts), default=0)


@dataclass(frozen=True)
class Every(Clock):
    """Fires at each `period`-th step of its stream, the first time at step `phase`."""

    period: int
    phase: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        if not _whole(self.period) or not 1 <= self.period <= LONGEST:
            raise SpecError(f"every: the period must be 1 … {LONGEST} steps, got {self.period!r}")
        if not _whole(self.phase) or not 0 <= self.phase < self.period:
            raise SpecError(f"every: the phase must be in 0 … {self.period - 1}, got {self.phase!r}")


@dataclass(frozen=True)
class Event(Clock):
    """Fires where a number that is watched lies in a range. NaN lies in none, and differs from all.

    Attributes
    ----------
    source : what is watched, ``"what.kind"``, split at the last dot: of a program the meter of a region,
        ``"err.prediction"``; of a clocked network the ``mean``, ``max``, ``min`` or ``rms`` of a layer, an output or
        an input, ``"1.0.0.0.rms"``
    above, at_least : from where on, without and with that number
    below, at_most : up to where
    equal, unequal : the one number, or all but it; these stand alone

    Raises
    ------
    SpecError : no bound is given, two of one side, or one that is not finite
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
            raise SpecError(f"event: {self.source!r} names nothing to watch", hint='what and kind, "err.prediction"')
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
                f"event: {self.source} has bounds that do not go together",
                hint="one from which it fires, one up to which, or equal or unequal alone",
            )
        if not lower + upper + alone:
            raise SpecError(f"event: {self.source} has no bound", hint="Event(…, above=0.5)")

    @property
    def what(self) -> str:
        """Name of that which is watched."""
        return self.source.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """Which number of it."""
        return self.source.rpartition(".")[2]


@dataclass(frozen=True)
class On(Clock):
    """Fires where something happens that is told from outside.

    Attributes
    ----------
    name : an input: it happens at a step that gives the input a row which is not all zeros
    """

    name: str

    def __post_init__(self) -> None:
        """Check the field."""
        if not isinstance(self.name, str) or not self.name:
            raise SpecError(f"on: expected a name, got {self.name!r}")


@dataclass(frozen=True)
class _Joined(_Around):
    terms: tuple[Clock, ...]

    def __post_init__(self) -> None:
        """Take terms of the same kind apart, so that equal clocks are equal values."""
        flat: list[Clock] = []
        for term in self.terms:
            flat += term.terms if type(term) is type(self) else (term,)
        object.__setattr__(self, "terms", tuple(flat))
        if len(flat) < 2:
            raise SpecError(f"clock: two clocks or more are combined, got {len(flat)}")
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return self.terms


class And(_Joined):
    """Fires where all of them do: ``a & b``."""


class Or(_Joined):
    """Fires where one of them does: ``a | b``."""


@dataclass(frozen=True)
class Not(_Around):
    """Fires where `term` does not: ``~a``."""

    term: Clock

    def __post_init__(self) -> None:
        """Check the field."""
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return (self.term,)


@dataclass(frozen=True)
class _Counting(_Around):
    clock: Clock
    steps: int
    word: ClassVar[str]

    def __post_init__(self) -> None:
        """Check the fields."""
        if not _whole(self.steps) or not 1 <= self.steps <= LONGEST:
            raise SpecError(f"{self.word}: the steps must be 1 … {LONGEST}, got {self.steps!r}")
        self._check()

    @property
    def parts(self) -> tuple[Clock, ...]:
        return (self.clock,)


class Cooldown(_Counting):
    """Fires where `clock` does, and then not for so many `steps`.

    What it holds back has not fired: silence inside of it goes on.
    """

    word: ClassVar[str] = "cooldown"


class MaxSilence(_Counting):
    """Fires where `clock` does, and where it has not fired for so many `steps`; also at the first step."""

    word: ClassVar[str] = "silence"


class Inner(_Counting):
    """Fires where `clock` does, and then computes `steps` times more within the same step of its program."""

    word: ClassVar[str] = "inner"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
