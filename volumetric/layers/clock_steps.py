"""A step of a clock, generic over the backend: from counters to whether it fires, and the new counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.layers.clock import And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, On, Or

T = TypeVar("T")


class ClockOps(Protocol[T]):
    """The backend of a step. Booleans have the shape of counters, one element for each stream."""

    def event_value(self, source: str, /) -> T:
        """Return the value that an event observes."""
        ...

    def happens(self, name: str, /) -> T:
        """Return whether an external event happens."""
        ...

    def over(self, x: T, number: float, /) -> T:
        """Return whether x is greater; false for NaN."""
        ...

    def under(self, x: T, number: float, /) -> T:
        """Return whether x is less; false for NaN."""
        ...

    def both(self, a: T, b: T, /) -> T:
        """Return whether both are true."""
        ...

    def either(self, a: T, b: T, /) -> T:
        """Return whether one is true."""
        ...

    def negate(self, a: T, /) -> T:
        """Return whether it is false."""
        ...

    def count_down(self, count: T, begins: T, steps: float, /) -> T:
        """Return `steps` if a count starts, else one less than `count`, down to 0."""
        ...


def counters(clock: Clock) -> tuple[float, ...]:
    """Return the initial counters of a clock.

    There is one for each `Every`, `Cooldown` and `MaxSilence` in it, in the order of `Clock.walk`: the steps until it
    fires, until it may fire again, and until the silence is too long.
    """
    counts: list[float] = []
    for part in clock.walk():
        if isinstance(part, Every):
            counts.append(float(part.phase))
        elif isinstance(part, (Cooldown, MaxSilence)):
            counts.append(0.0)
    return tuple(counts)


def step(clock: Clock, counts: Sequence[T], of: ClockOps[T]) -> tuple[T, list[T]]:
    """Return whether a clock fires, and its counters after the step."""
    after: list[T] = list(counts)
    number = iter(range(len(after)))

    def fires(node: Clock, free: T | None) -> T:
        """Return whether a clock fires; `free`: whether no outer cooldown suppresses it, None: no outer cooldown."""
        if isinstance(node, Every):
            n = next(number)
            due = of.under(after[n], 0.5)
            after[n] = of.count_down(after[n], due, node.period - 1.0)
            return due
        if isinstance(node, Event):
            return _in_range(node, of.event_value(node.source), of)
        if isinstance(node, On):
            return of.happens(node.name)
        if isinstance(node, Not):
            return of.negate(fires(node.term, free))
        if isinstance(node, (And, Or)):
            join = of.both if isinstance(node, And) else of.either
            firing = fires(node.terms[0], free)
            for term in node.terms[1:]:
                firing = join(firing, fires(term, free))
            return firing
        if isinstance(node, Cooldown):
            n = next(number)
            warm = of.under(after[n], 0.5)
            firing = of.both(fires(node.clock, warm if free is None else of.both(free, warm)), warm)
            after[n] = of.count_down(after[n], firing if free is None else of.both(firing, free), float(node.steps))
            return firing
        if isinstance(node, MaxSilence):
            n = next(number)
            firing = of.either(fires(node.clock, free), of.under(after[n], 0.5))
            after[n] = of.count_down(after[n], firing if free is None else of.both(firing, free), node.steps - 1.0)
            return firing
        assert isinstance(node, Inner)
        return fires(node.clock, free)

    return fires(clock, None), after


def _in_range(event: Event, x: T, of: ClockOps[T]) -> T:
    conditions: list[T] = []
    if event.above is not None:
        conditions.append(of.over(x, event.above))
    if event.below is not None:
        conditions.append(of.under(x, event.below))
    if event.at_least is not None:
        conditions.append(of.either(of.over(x, event.at_least), _equal(x, event.at_least, of)))
    if event.at_most is not None:
        conditions.append(of.either(of.under(x, event.at_most), _equal(x, event.at_most, of)))
    if event.equal is not None:
        conditions.append(_equal(x, event.equal, of))
    if event.unequal is not None:
        conditions.append(of.negate(_equal(x, event.unequal, of)))
    return conditions[0] if len(conditions) == 1 else of.both(conditions[0], conditions[1])


def _equal(x: T, number: float, of: ClockOps[T]) -> T:
    elsewhere = of.either(of.over(x, number), of.under(x, number))
    return of.both(of.negate(elsewhere), of.either(of.over(x, -1.0), of.under(x, 1.0)))  # NaN is neither


class NumpyClockOps:
    """Steps in NumPy with bool arrays.

    Parameters
    ----------
    watched, happens : name → an array, one number for each stream
    """

    def __init__(self, watched: Callable[[str], Array], happens: Callable[[str], Array]) -> None:
        self.event_value: Callable[[str], Array] = watched
        self.happens: Callable[[str], Array] = happens

    @staticmethod
    def over(x: Array, number: float) -> Array:
        """Return whether x is greater."""
        return x > number

    @staticmethod
    def under(x: Array, number: float) -> Array:
        """Return whether x is less."""
        return x < number

    @staticmethod
    def both(a: Array, b: Array) -> Array:
        """Return whether both are true."""
        return a & b

    @staticmethod
    def either(a: Array, b: Array) -> Array:
        """Return whether one is true."""
        return a | b

    @staticmethod
    def negate(a: Array) -> Array:
        """Return whether it is false."""
        return ~a

    @staticmethod
    def count_down(count: Array, begins: Array, steps: float) -> Array:
        """Return `steps` if a count starts, else one less than `count`, down to 0."""
        return np.where(begins, count.dtype.type(steps), np.maximum(count - 1, 0))


class GraphClockOps:
    """Steps as nodes of a graph. They have no gradient.

    Parameters
    ----------
    watched, happens : name → a tensor of the shape of counts
    """

    def __init__(self, work: GraphBuilder, watched: Callable[[str], int], happens: Callable[[str], int]) -> None:
        self.work: GraphBuilder = work
        self.event_value: Callable[[str], int] = watched
        self.happens: Callable[[str], int] = happens

    def over(self, x: int, number: float) -> int:
        """Where x is greater."""
        return self.work.binary("greater", x, self.work.scalar(number))

    def under(self, x: int, number: float) -> int:
        """Where x is less."""
        return self.work.binary("greater", self.work.scalar(number), x)

    def both(self, a: int, b: int) -> int:
        """Where both are true."""
        return self.work.binary("mul", a, b)

    def either(self, a: int, b: int) -> int:
        """Where one is true."""
        return self.work.binary("max", a, b)

    def negate(self, a: int) -> int:
        """Where it is not true."""
        return self.work.affine(a, -1.0, 1.0)

    def count_down(self, count: int, begins: int, steps: float) -> int:
        """`steps` where a count begins, else one less, down to 0."""
        work = self.work
        down = work.unary(work.affine(count, 1.0, -1.0), "relu")
        return work.add(work.binary("mul", down, self.negate(begins)), work.affine(begins, steps))
