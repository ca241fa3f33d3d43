"""Events for observers: statistics of a layer's output or gradient, which a `Watch` collects over a pass."""

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
"""An element counts as active if its magnitude is above this."""

Mode = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Statistics of an array.

    Attributes
    ----------
    min, max, mean : over all elements; NaN if an element is NaN, 0 for an empty array
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
        """Return the statistics of an array; sums are in float64."""
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
        """Return the statistics of both arrays together."""
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
    """Statistics of one layer in one pass.

    Attributes
    ----------
    mode : ``"forward"``: of the layer's output; ``"backward"``: of the gradient of the output
    step : number of the pass, from 1; in training the number of the update
    where : coordinate of the layer, with ``/0`` and so on inside containers
    kind : kind of the layer, or ``add`` and ``concat`` for operations of containers
    stats : statistics over all rows of the pass
    model : name of the model
    """

    mode: Mode
    step: int
    where: str
    kind: str
    stats: Stats
    model: str = "network"

    def describe(self) -> dict[str, Any]:
        """Return JSON data; numbers that are not finite become text, since JSON has none."""
        stats = {
            name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self.stats).items()
        }
        about = {"mode": self.mode, "step": self.step, "where": self.where, "kind": self.kind, "model": self.model}
        return {**about, "stats": stats}


class Observer(Protocol):
    """Receives events. It is called between two steps of a computation, so it should be fast.

    It may also have a method ``start(step)``, which training calls before its first update. A resumed run repeats the
    events of updates after `step`. With a method ``wants(step)``, statistics of an update are only computed if it, or
    another observer, wants them; it may be called several times for an update, before it.
    """

    def observe(self, event: LayerEvent) -> None:
        """Receive one event."""
        ...

    def close(self) -> None:
        """Release files and sockets."""
        ...


class Watch:
    """Collects statistics of one pass, which may have several parts, such as the sequences of a batch.

    A device with its own memory computes statistics there and calls `add`.

    Parameters
    ----------
    observers : called at the end of each pass, with layers in the order of computation
    model : name of the model in the events
    """

    def __init__(self, observers: Sequence[Observer], model: str = "network") -> None:
        self._observers = tuple(observers)
        self._model = model
        self._sums: dict[tuple[Mode, str, str], Stats] = {}
        self._passes = 0

    def is_wanted(self, number: int) -> bool:
        """Whether an observer wants the statistics of a pass."""
        wants = (getattr(observer, "wants", None) for observer in self._observers)
        return any(want is None or want(number) for want in wants)

    def add(self, mode: Mode, step: Step, stats: Stats) -> None:
        """Add statistics of a part of the output of `step`, or of its gradient."""
        key = (mode, step.where, step.op)
        self._sums[key] = self._sums[key] + stats if key in self._sums else stats

    def forward(self, plan: Plan, values: dict[int, Array]) -> None:
        """Add every value of a forward pass of the reference device."""
        for step in (step for step in plan.steps if step.outputs):
            self.add("forward", step, Stats.of(values[step.outputs[0]]))

    def backward(self, step: Step, gradient: Array) -> None:
        """Add the gradient of the output of `step`."""
        self.add("backward", step, Stats.of(gradient))

    def flush(self, number: int | None = None) -> None:
        """Send the pass to the observers and start the next one; `number` is the pass's number, None: count here."""
        self._passes = self._passes + 1 if number is None else number
        sums, self._sums = self._sums, {}
        for (mode, where, kind), stats in sums.items():
            event = LayerEvent(mode=mode, step=self._passes, where=where, kind=kind, stats=stats, model=self._model)
            for observer in self._observers:
                observer.observe(event)

    def drop(self) -> None:
        """Discard the statistics of a failed pass."""
        self._sums = {}
