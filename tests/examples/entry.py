"""What a kind of layer shows of itself: everything that tests, documents and benchmarks run of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tests.learning.tasks import SAMPLES, Task
from volumetric.layers import Conv1d, Conv2d, Conv3d, Dense, LayerSpec

Example: TypeAlias = tuple[LayerSpec, tuple[int, ...]]
"""A layer, and the shape of its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """The examples of one kind of layer.

    Attributes
    ----------
    cases : name → an example small enough for finite differences, one for each way through the layer's code; the
        kind's page in docs/layers shows the first ones
    sized : makes an example of a number of rows and two widths, for the parity of devices on sizes that divide nothing
    task : what the layer learns; without layers of its own it is that of `sized`, which stands behind one that learns
        through its gradient where it has no parameters
    bench : what is timed, as it might occur in a network of some ten million weights: an example, or the three numbers
        that `sized` makes it of; None where nothing is computed, or PyTorch has nothing like it
    """

    cases: Mapping[str, Example]
    sized: Callable[[int, int, int], Example]
    task: Task = field(default_factory=Task)
    bench: Example | tuple[int, int, int] | None = None

    def timed(self) -> Example | None:
        """The example of `bench`."""
        match self.bench:
            case (int(rows), int(a), int(b)):
                return self.sized(rows, a, b)
            case (LayerSpec() as spec, tuple(shape)):
                return spec, shape
            case _:
                return None

    def lesson(self) -> Task:
        """The task of `task`, with layers."""
        if self.task.layers:
            return self.task
        spec, (_, *row) = self.sized(SAMPLES, 4, 3)
        if spec.params():
            return replace(self.task, layers=(spec,), row=tuple(row))
        width, *places = row
        if not places:
            return replace(self.task, layers=(Dense(in_features=4, out_features=width), spec), row=(4,))
        conv = (Conv1d, Conv2d, Conv3d)[len(places) - 1](in_channels=1, out_channels=width, kernel_size=2)
        return replace(self.task, layers=(conv, spec), row=(1, *(place + 1 for place in places)))
