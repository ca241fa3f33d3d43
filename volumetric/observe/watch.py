"""Watch: what a device calls while it computes; it sums statistics over a pass and tells observers at its end."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric._typing import Array
from volumetric.observe.events import LayerEvent, Mode, Observer, Stats
from volumetric.runtime import Plan
from volumetric.runtime.plan import Step


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
