"""The reference device with observers: every forward call tells what each layer made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.observe.events import Observer
from volumetric.observe.watch import Watch
from volumetric.runtime import Plan, RunOptions
from volumetric.runtime.device import Given
from volumetric.runtime.reference import ReferenceDevice, ReferenceExecutable, TrainingPass
from volumetric.runtime.reference_state import ReferenceState
from volumetric.weights import Params


class ObservedDevice(ReferenceDevice):
    """A `ReferenceDevice` whose executables tell `observers` about every call of forward."""

    def __init__(self, observers: Sequence[Observer], dtype: type[np.float32] | type[np.float64] = np.float32) -> None:
        super().__init__(dtype)
        self._observers = observers

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> ReferenceExecutable:
        """Decode the parameters of `plan`."""
        plain = super().compile(plan, params, options)
        return _Observed(plain.plan, plain.weights, plain.options, self.dtype, Watch(self._observers))


class _Observed(ReferenceExecutable):
    def __init__(
        self,
        plan: Plan,
        weights: Mapping[str, Array],
        options: RunOptions,
        dtype: type[np.float32] | type[np.float64],
        watch: Watch,
    ) -> None:
        super().__init__(plan, weights, options, dtype)
        self._watch = watch

    def trace(
        self,
        x: Given,
        *,
        state: ReferenceState | None = None,
        last_only: bool = False,
        training: TrainingPass | None = None,
        outputs: Collection[str] | None = None,
    ) -> tuple[dict[int, Array], list[Any]]:
        """Compute every value of the plan, whichever `outputs` are wanted, and tell of it."""
        values, tape = super().trace(x, state=state, last_only=last_only, training=training)
        self._watch.forward(self.plan, values)
        self._watch.flush()
        return values, tape
