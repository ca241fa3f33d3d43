"""Clocks as genes: new clocks, and changes of existing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from volumetric.layers.clock import LONGEST, And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, Or

_MOST_STEPS = 8
"""Longest period, cooldown and silence of a new clock."""
_MOST_INNER = 3


def new_clock(meters: Sequence[str], rng: np.random.Generator) -> Clock:
    """Return a clock by steps, or by the value of a meter (``region.kind``) if there are meters.

    An event fires at the latest after a silence, so that a level that is never reached does not stop the region.
    """
    steps = int(rng.integers(2, _MOST_STEPS + 1))
    if not meters or rng.random() < 0.5:
        return Every(steps)
    source, level = meters[int(rng.integers(len(meters)))], round(float(10 ** rng.uniform(-2, 0)), 4)
    return MaxSilence(Event(source, above=level), steps)


def changed_clock(clock: Clock, meters: Sequence[str], rng: np.random.Generator, *, inner: bool) -> Clock | None:
    """Return a looser, tighter or otherwise changed clock; None removes the clock.

    Parameters
    ----------
    inner : whether it may have inner steps, as a region's may
    """
    steps = clock.steps if isinstance(clock, Inner) else 0
    clock = clock.clock if isinstance(clock, Inner) else clock
    choice = rng.random()
    if choice < 0.15:
        return None
    if choice < 0.55:
        clock = _tuned(clock, rng)
    elif choice < 0.7:
        clock = Or((clock, new_clock(meters, rng)))
    elif choice < 0.85:
        clock = And((clock, new_clock(meters, rng)))
    elif choice < 0.92 or not inner:
        clock = Cooldown(clock, int(rng.integers(1, _MOST_STEPS)))
    else:
        steps = int(np.clip(steps + rng.choice((-1, 1)), 0, _MOST_INNER))
    return Inner(clock, steps) if steps else clock


def _tuned(clock: Clock, rng: np.random.Generator) -> Clock:
    """Change one number in a clock, or drop one of its joined clocks."""
    if isinstance(clock, Every):
        period = _stepped(clock.period, rng)
        return Every(period, min(clock.phase, period - 1))
    if isinstance(clock, Event):
        bounds = {
            name: round(float(value * np.exp(rng.normal(0, 0.5))), 6)
            for name in ("above", "below", "at_least", "at_most")
            if (value := getattr(clock, name)) is not None
        }
        low, high = bounds.get("above", bounds.get("at_least")), bounds.get("below", bounds.get("at_most"))
        return clock if low is not None and high is not None and low >= high else dataclasses.replace(clock, **bounds)
    if isinstance(clock, Not):
        return Not(_tuned(clock.term, rng))
    if isinstance(clock, (And, Or)):
        terms = [*clock.terms]
        at = int(rng.integers(len(terms)))
        if rng.random() < 0.3:
            del terms[at]
            return terms[0] if len(terms) == 1 else type(clock)(tuple(terms))
        terms[at] = _tuned(terms[at], rng)
        return type(clock)(tuple(terms))
    if isinstance(clock, (Cooldown, MaxSilence)):
        if rng.random() < 0.5:
            return dataclasses.replace(clock, steps=_stepped(clock.steps, rng))
        return clock.clock if rng.random() < 0.3 else dataclasses.replace(clock, clock=_tuned(clock.clock, rng))
    return clock


def _stepped(count: int, rng: np.random.Generator) -> int:
    other = (count - 1, count + 1, count // 2, count * 2)[int(rng.integers(4))]
    return int(np.clip(other, 1, LONGEST))
