"""Schedules: the factor on the learning rate as a function of the number of updates done."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Final

from volumetric.base import config_tables
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.base.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Base of all schedules."""

    kind: ClassVar[str]

    def __call__(self, done: int) -> float:
        """Return the factor of the update that follows `done` updates."""
        raise NotImplementedError(self.kind)

    def _positive(self, *names: str) -> None:
        config_tables.check_fields(self, self.kind)
        for name in names:
            if getattr(self, name) < 1:
                raise SpecError(
                    f"{self.kind}: {name} must be at least 1, got {getattr(self, name)}",
                    hint=f"{name} counts updates: a run has batches per epoch × epochs of them",
                )


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Schedule):
    """Always 1."""

    kind: ClassVar[str] = "constant"

    def __call__(self, done: int) -> float:
        return 1.0


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to `floor` over `steps` updates, then `floor`.

    Loshchilov and Hutter 2017 (arXiv 1608.03983), without restarts.
    """

    kind: ClassVar[str] = "cosine"

    steps: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        self._positive("steps")

    def __call__(self, done: int) -> float:
        progress = min(done / self.steps, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Schedule):
    """A straight line from 1 down to `floor` over `steps` updates, then `floor`: ``1 − (1 − floor) · done / steps``."""

    kind: ClassVar[str] = "linear"

    steps: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        self._positive("steps")

    def __call__(self, done: int) -> float:
        return 1 - (1 - self.floor) * min(done / self.steps, 1.0)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class StepDecay(Schedule):
    """Multiplied by `factor` after each `every` updates: ``factor^⌊done / every⌋``."""

    kind: ClassVar[str] = "step"

    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        """Check the fields."""
        self._positive("every")

    def __call__(self, done: int) -> float:
        return self.factor ** (done // self.every)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp(Schedule):
    """A linear rise over `steps` updates, ``(done + 1) / steps``, then another schedule, counted from its own start.

    The first update has the factor ``1 / steps``, because a factor of 0 would waste it.
    """

    kind: ClassVar[str] = "warmup"

    steps: int
    then: Schedule = field(default_factory=Constant)

    def __post_init__(self) -> None:
        """Check the fields."""
        self._positive("steps")
        if not callable(self.then) or isinstance(self.then, type):
            raise SpecError(f"warmup: then must be a schedule, got {self.then!r:.60}", hint="as Cosine(steps=1000)")

    def __call__(self, done: int) -> float:
        return (done + 1) / self.steps if done < self.steps else self.then(done - self.steps)


SCHEDULES: Final[Registry[type[Schedule]]] = Registry(
    group="volumetric.schedules", own={cls.kind: cls for cls in (Constant, Linear, Cosine, StepDecay, WarmUp)}
)
"""Name → schedule."""
