"""What observers are told: statistics of one array that a layer made, which a `Watch` collects over a pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np

from volumetric.base._typing import Array
from volumetric.run import Plan
from volumetric.run.plan import Step

ACTIVE_ABOVE: Final = 1e-6
"""An element counts as active where its magnitude is above this."""

Mode = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics of an array.

    Attributes
    ----------
    min, max, mean : over all elements; NaN where an element is NaN, 0 of an empty array
    active : fraction of the elements above 1e-6 in magnitude
    total : number of elements
    """

    min: float
    max: float
    mean: float
    active: float
    total: int

    @classmethod
    def of(cls, array: Array) -> Stats:
        """Return the statistics of an array; sums are taken in float64."""
        if array.size == 0:
            return cls(min=0.0, max=0.0, mean=0.0, active=0.0, total=0)
        return cls(
            min=float(array.min()),
            max=float(array.max()),
            mean=float(array.mean(dtype=np.float64)),
            active=float(np.count_nonzero(np.abs(array) > ACTIVE_ABOVE) / array.size),
            total=array.size,
        )

    def __add__(self, other: Stats) -> Stats:
        """Statistics of both arrays together."""
        total = self.total + other.total
        if not self.total or not other.total:
            return self if self.total else other
        share = self.total / total
        return Stats(
            min=float(np.minimum(self.min, other.min)),  # unlike min(), keeps NaN
            max=float(np.maximum(self.max, other.max)),
            mean=self.mean * share + other.mean * (1 - share),
            active=self.active * share + other.active * (1 - share),
            total=total,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEvent:
    """One layer in one pass.

    Attributes
    ----------
    mode : ``"forward"``: of the layer's output; ``"backward"``: of the gradient with respect to it
    step : number of the pass, from 1; in training that of the update
    where : coordinate of the layer, with ``/0`` and so on inside containers
    kind : of the layer, or ``add`` and ``concat`` for what containers do
    stats : of all rows of the pass together
    model : name that tells several models apart
    """

    mode: Mode
    step: int
    where: str
    kind: str
    stats: Stats
    model: str = "network"

    def describe(self) -> dict[str, Any]:
        """Return JSON data; numbers that are not finite, which JSON cannot hold, as text."""
        stats = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self.stats).items()
        }
        about = {"mode": self.mode, "step": self.step, "where": self.where, "kind": self.kind, "model": self.model}
        return {**about, "stats": stats}


class Observer(Protocol):
    """Takes events. It is called between two steps of a computation, so it should be quick.

    It may have a method ``start(step)`` too, which training calls before its first update: what was told of updates
    after `step`, by a run that was interrupted, will be told again.
    """

    def observe(self, event: LayerEvent) -> None:
        """Take one event."""
        ...

    def close(self) -> None:
        """Give back files and sockets."""
        ...


class Watch:
    """Collects statistics of one pass, which may have several parts, such as the sequences of a batch.

    A device that holds its arrays elsewhere calls `add` with statistics that it took there.

    Parameters
    ----------
    observers : told at the end of each pass, layers in the order in which they were computed
    model : name in the events
    """

    def __init__(self, observers: Sequence[Observer], model: str = "network") -> None:
        self._observers = tuple(observers)
        self._model = model
        self._sums: dict[tuple[Mode, str, str], Stats] = {}
        self._passes = 0

    def add(self, mode: Mode, step: Step, stats: Stats) -> None:
        """Add statistics of a part of what `step` made, or of the gradient with respect to it."""
        key = (mode, step.where, step.op)
        self._sums[key] = self._sums[key] + stats if key in self._sums else stats

    def forward(self, plan: Plan, values: dict[int, Array]) -> None:
        """Add every value of a forward pass, as the reference device returns them."""
        for step in (step for step in plan.steps if step.outputs):
            self.add("forward", step, Stats.of(values[step.outputs[0]]))

    def backward(self, step: Step, gradient: Array) -> None:
        """Add the gradient with respect to the output of `step`."""
        self.add("backward", step, Stats.of(gradient))

    def flush(self, number: int | None = None) -> None:
        """Tell the observers of the pass, and begin the next one. `number` is its number (None: counted here)."""
        self._passes = self._passes + 1 if number is None else number
        sums, self._sums = self._sums, {}
        for (mode, where, kind), stats in sums.items():
            event = LayerEvent(mode=mode, step=self._passes, where=where, kind=kind, stats=stats, model=self._model)
            for observer in self._observers:
                observer.observe(event)

    def drop(self) -> None:
        """Forget what was collected of a pass that failed."""
        self._sums = {}
