"""A step of a clock: what it keeps, what fires, and what it keeps then, in whatever computes that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.layers.clock import And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, On, Or

T = TypeVar("T")


class Steps(Protocol[T]):
    """What a step is computed with. Truths are of the same shape as counts, one for each stream."""

    def watched(self, source: str, /) -> T:
        """Return the number that an event watches."""
        ...

    def happens(self, name: str, /) -> T:
        """Return where something that is told from outside happens."""
        ...

    def over(self, x: T, number: float, /) -> T:
        """Return where x is greater; NaN is not."""
        ...

    def under(self, x: T, number: float, /) -> T:
        """Return where x is less; NaN is not."""
        ...

    def both(self, a: T, b: T, /) -> T:
        """Return where both are true."""
        ...

    def either(self, a: T, b: T, /) -> T:
        """Return where one is true."""
        ...

    def negated(self, a: T, /) -> T:
        """Return where it is not true."""
        ...

    def counted(self, count: T, begins: T, steps: float, /) -> T:
        """Return `steps` where a count begins, else one less, down to 0."""
        ...


def counters(clock: Clock) -> tuple[float, ...]:
    """Return what the counts of a clock are when a stream begins.

    There is one for each `Every`, `Cooldown` and `MaxSilence` in it, in the order of `Clock.walk`: the steps until it
    fires, until it may fire again, and until it has been silent for too long.
    """
    counts: list[float] = []
    for part in clock.walk():
        if isinstance(part, Every):
            counts.append(float(part.phase))
        elif isinstance(part, (Cooldown, MaxSilence)):
            counts.append(0.0)
    return tuple(counts)


def step(clock: Clock, counts: Sequence[T], of: Steps[T]) -> tuple[T, list[T]]:
    """Return where a clock fires, and its counts after the step."""
    after: list[T] = list(counts)
    number = iter(range(len(after)))

    def fires(node: Clock, free: T | None) -> T:
        """Return where a clock fires; `free`: where no cooldown around it holds it back, None: nowhere."""
        if isinstance(node, Every):
            n = next(number)
            due = of.under(after[n], 0.5)
            after[n] = of.counted(after[n], due, node.period - 1.0)
            return due
        if isinstance(node, Event):
            return _in_range(node, of.watched(node.source), of)
        if isinstance(node, On):
            return of.happens(node.name)
        if isinstance(node, Not):
            return of.negated(fires(node.term, free))
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
            after[n] = of.counted(after[n], firing if free is None else of.both(firing, free), float(node.steps))
            return firing
        if isinstance(node, MaxSilence):
            n = next(number)
            firing = of.either(fires(node.clock, free), of.under(after[n], 0.5))
            after[n] = of.counted(after[n], firing if free is None else of.both(firing, free), node.steps - 1.0)
            return firing
        assert isinstance(node, Inner)
        return fires(node.clock, free)

    return fires(clock, None), after


def _in_range(event: Event, x: T, of: Steps[T]) -> T:
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
        conditions.append(of.negated(_equal(x, event.unequal, of)))
    return conditions[0] if len(conditions) == 1 else of.both(conditions[0], conditions[1])


def _equal(x: T, number: float, of: Steps[T]) -> T:
    elsewhere = of.either(of.over(x, number), of.under(x, number))
    return of.both(of.negated(elsewhere), of.either(of.over(x, -1.0), of.under(x, 1.0)))  # NaN is neither


class NumpySteps:
    """Steps in NumPy: truths are bool.

    Parameters
    ----------
    watched, happens : name → an array, one number for each stream
    """

    def __init__(self, watched: Callable[[str], Array], happens: Callable[[str], Array]) -> None:
        self.watched, self.happens = watched, happens

    @staticmethod
    def over(x: Array, number: float) -> Array:
        """Where x is greater."""
        return x > number

    @staticmethod
    def under(x: Array, number: float) -> Array:
        """Where x is less."""
        return x < number

    @staticmethod
    def both(a: Array, b: Array) -> Array:
        """Where both are true."""
        return a & b

    @staticmethod
    def either(a: Array, b: Array) -> Array:
        """Where one is true."""
        return a | b

    @staticmethod
    def negated(a: Array) -> Array:
        """Where it is not true."""
        return ~a

    @staticmethod
    def counted(count: Array, begins: Array, steps: float) -> Array:
        """`steps` where a count begins, else one less, down to 0."""
        return np.where(begins, count.dtype.type(steps), np.maximum(count - 1, 0))


class GraphSteps:
    """What `volumetric.layers.clock_steps.step` computes with. No gradient goes through it.

    Parameters
    ----------
    watched, happens : name → a tensor of the shape of counts
    """

    def __init__(self, work: GraphBuilder, watched: Callable[[str], int], happens: Callable[[str], int]) -> None:
        self.work, self.watched, self.happens = work, watched, happens

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

    def negated(self, a: int) -> int:
        """Where it is not true."""
        return self.work.affine(a, -1.0, 1.0)

    def counted(self, count: int, begins: int, steps: float) -> int:
        """`steps` where a count begins, else one less, down to 0."""
        work = self.work
        down = work.unary(work.affine(count, 1.0, -1.0), "relu")
        return work.add(work.binary("mul", down, self.negated(begins)), work.affine(begins, steps))
