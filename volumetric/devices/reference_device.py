"""The reference device: interprets the layers' graphs with NumPy, in float32 or float64. Slow and simple."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.devices.reference_state import ReferenceState
from volumetric.graph.interpret import Float
from volumetric.graph.open_interpreter import OpenRowsInterpreter
from volumetric.network import OUTPUT, Params
from volumetric.run.call_batch import CheckedRows, greedy_each, run_each
from volumetric.run.device import (
    Constant,
    DeviceInfo,
    MemoryReport,
    RowInputs,
    RowOutputs,
    RunOptions,
    SequenceRows,
    output_of,
)
from volumetric.run.graph.network_graph import layered_graph
from volumetric.run.plan import Plan
from volumetric.run.state_file import restore_state
from volumetric.run.step_times import StepTime

if TYPE_CHECKING:
    from volumetric.graph.numpy_graphs import NumpyGraphs
    from volumetric.network import Network
    from volumetric.run.merged_lora import MergedLora
    from volumetric.run.streams import RowStream, S, Streamable


class ReferenceDevice:
    """NumPy, in float32 or float64; decodes every weight to that type when compiling a plan."""

    def __init__(self, dtype: Float = np.float32) -> None:
        self.dtype = dtype

    @property
    def info(self) -> DeviceInfo:
        """The facts printed by `volumetric devices`."""
        return DeviceInfo(
            name="reference", kind="reference", description=f"NumPy {np.__version__}, {self.dtype.__name__}"
        )

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> ReferenceExecutable:
        """Decode the parameters of `plan`."""
        options = options or RunOptions()
        if options.compute in {"int8", "bfloat16", "float16"}:
            raise UnsupportedError(
                f"the reference device does not round to {options.compute}", hint="use compute='float32'"
            )
        if options.kv_dtype == "int8":
            raise UnsupportedError(
                "the reference device stores keys and values as floats only", hint="use device='cpu'"
            )
        weights: dict[str, Array] = {}
        for key in plan.params:
            weights[key] = params[key].values().astype(self.dtype, copy=False)
            params[key].release()
        executable = ReferenceExecutable(plan, weights, options, self.dtype)
        if plan.low_rank:
            from volumetric.run.merged_lora import MergedLora

            executable.overlaid = MergedLora(plan, weights, params)
        return executable

    def stream(self, machine: Network | Streamable[S], params: Params, *, batch: int = 1) -> RowStream | S:
        """Return `batch` streams: see `volumetric.run.streams`."""
        from volumetric.run.streams import open_stream

        return open_stream(self, machine, params, batch=batch)

    def graphs(self) -> NumpyGraphs:
        """Return the interpreter of tensor graphs, in the same precision."""
        from volumetric.graph.numpy_graphs import NumpyGraphs

        return NumpyGraphs(self.dtype)


class ReferenceExecutable:
    """A network's graph and its decoded weights."""

    def __init__(self, plan: Plan, weights: Mapping[str, Array], options: RunOptions, dtype: Float) -> None:
        self.plan = plan
        self.weights: Mapping[str, Array] = weights
        self.options = options
        self.overlaid: MergedLora | None = None
        self._dtype = dtype

    @cached_property
    def _graph(self) -> OpenRowsInterpreter:
        graph, _ = layered_graph(self.plan)
        return OpenRowsInterpreter(graph, self._dtype)

    def update(self, params: Params) -> None:
        """Replace weights, see `Updatable.update`."""
        known = {key: store.values().astype(self._dtype) for key, store in params.items() if key in self.weights}
        self.weights = {**self.weights, **known}

    @property
    def memory(self) -> MemoryReport:
        """Bytes of decoded weights, and of the cache per token."""
        row, fixed = self._state_bytes
        weights = sum(w.nbytes for w in self.weights.values())
        return MemoryReport(weights=weights, scratch=0, state_per_token=row, state_fixed=fixed)

    @cached_property
    def _state_bytes(self) -> tuple[int, int]:
        """Bytes of a state per row, and per sequence."""
        sizes, size = self.plan.states.values(), np.dtype(self._dtype).itemsize
        row, fixed = (sum(one.size for one in sizes if one.kind == kind) for kind in ("rows", "fixed"))
        return row * size, fixed * size

    def new_state(self) -> ReferenceState:
        """Return an empty state."""
        return ReferenceState(self.plan.states, self._dtype)

    def restore(self, data: bytes) -> ReferenceState:
        """Return a state that continues from saved `data`."""
        state = self.new_state()
        restore_state(state, data, self.plan.states, self.options.context)
        return state

    def run(self, pieces: Sequence[SequenceRows]) -> list[RowOutputs]:
        """Append the rows of each sequence to its state, one sequence after the other."""
        return run_each(self, self.plan, pieces)

    def run_part(self, part: CheckedRows) -> Mapping[str, NDArray[np.float32]]:
        """Append rows to a state and return its outputs for the last row, or for all rows."""
        if self.overlaid is None:
            return self._rows(part)
        from volumetric.run.merged_lora import runs_of_equal_scales

        parts: list[Mapping[str, NDArray[np.float32]]] = []
        for scales, rows in runs_of_equal_scales(part):
            self.weights = {**self.weights, **self.overlaid.weights(scales)}
            parts.append(self._rows(rows))
        if part.output_rows != "all" or len(parts) == 1:
            return parts[-1]
        return {name: np.concatenate([one[name] for one in parts]) for name in part.outputs}

    def _rows(self, part: CheckedRows) -> Mapping[str, NDArray[np.float32]]:
        order = tuple(self.plan.outputs)
        outputs = [order.index(name) for name in part.outputs]
        values = self._append(self._graph, part, outputs)
        return {name: np.array(rows, np.float32) for name, rows in zip(part.outputs, values, strict=True)}

    def _append(
        self, graph: OpenRowsInterpreter, part: CheckedRows, outputs: Sequence[int] | None = None
    ) -> list[Array]:
        """Run rows; commit them to the state only after nothing can fail."""
        state: ReferenceState = part.state
        buffers = {**self.weights, **state.buffers(graph.states)}
        values = graph.run([*part.inputs.values()], buffers, state.position, outputs, last=part.output_rows != "all")
        state.append(len(part), {key: buffers[key] for key in graph.states})
        return values

    def forward(self, state: ReferenceState, x: RowInputs, *, last_only: bool = True) -> NDArray[np.float32]:
        """Append the rows of `x` and return the output for the last row, or for all."""
        return output_of(self.run([SequenceRows(state, x, "last" if last_only else "all", (OUTPUT,))])[0])

    def greedy(
        self, states: Sequence[ReferenceState], tokens: Sequence[int], constant: Constant | None = None
    ) -> Generator[list[int]]:
        """Feed `tokens`, yield the argmax of each sequence, feed those, and so on."""
        return greedy_each(self, self.plan, states, tokens, constant)

    def step_times(self, states: Sequence[ReferenceState], rows: int = 1, *, repeats: int = 10) -> list[StepTime]:
        """Raise `UnsupportedError`: this device has no profiler."""
        raise UnsupportedError("the reference device has no profile", hint="use device='cpu' or device='gpu'")

    def close(self) -> None:
        """Drop the weights."""
        self.weights = {}
