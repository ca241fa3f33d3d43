"""The reference device with observers: every forward call reports each layer's output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.reference_device import ReferenceDevice, ReferenceExecutable
from volumetric.graph.interpret import Float
from volumetric.graph.open_interpreter import OpenRowsInterpreter
from volumetric.network.weight_store import Params
from volumetric.observe.layer_events import Observer, Watch
from volumetric.run import Plan, RunOptions
from volumetric.run.call_batch import CheckedRows
from volumetric.run.graph.network_graph import layered_graph


class ObservedDevice(ReferenceDevice):
    """A `ReferenceDevice` whose executables report every forward call to `observers`."""

    def __init__(self, observers: Sequence[Observer], dtype: Float = np.float32) -> None:
        super().__init__(dtype)
        self._observers = observers

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> ReferenceExecutable:
        """Decode the parameters of `plan`."""
        plain = super().compile(plan, params, options)
        executable = _Observed(plan, plain.weights, plain.options, self.dtype)
        executable.overlaid, executable.watch = plain.overlaid, Watch(self._observers)
        return executable


class _Observed(ReferenceExecutable):
    watch: Watch

    @cached_property
    def _every(self) -> tuple[OpenRowsInterpreter, tuple[int, ...]]:
        """Return the graph of all values of the plan, and their ids."""
        graph, numbers = layered_graph(self.plan, values=True)
        return OpenRowsInterpreter(graph, self._dtype), numbers

    def _rows(self, part: CheckedRows) -> Mapping[str, NDArray[np.float32]]:
        """Compute every value of the plan, regardless of the requested outputs, and report it."""
        graph, numbers = self._every
        values = dict(zip(numbers, self._append(graph, part), strict=True))
        inputs = dict(zip(self.plan.inputs.values(), part.inputs.values(), strict=True))
        self.watch.forward(self.plan, values)
        self.watch.flush()
        of = {name: (inputs | values)[self.plan.outputs[name]] for name in part.outputs}
        return {name: np.array(rows, np.float32) for name, rows in of.items()}
