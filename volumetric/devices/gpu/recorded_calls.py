"""Calls of an executable as dispatches that nobody has submitted yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.value_buffers import RowPort, row_bytes
from volumetric.run.lower import is_endless

if TYPE_CHECKING:
    from volumetric.devices.gpu.gpu_context import BoundDispatch
    from volumetric.devices.gpu.gpu_state import GpuState
    from volumetric.devices.gpu.gpu_subgraphs import GpuSubgraphs
    from volumetric.devices.gpu.kernels.dispatch import CallRows
    from volumetric.devices.gpu.page_pool import PagePool
    from volumetric.devices.gpu.recording_cache import RecordingCache
    from volumetric.devices.gpu.value_buffers import ValueBuffers
    from volumetric.graph.ops import Graph
    from volumetric.run.device import RunOptions
    from volumetric.run.graph.partition import Partition
    from volumetric.run.plan import Plan


class RecordsCalls:
    """The part of `GpuExecutable` that records calls for other hosts."""

    plan: Plan
    graph: Graph
    options: RunOptions
    scratch: ValueBuffers
    pool: PagePool
    recordings: RecordingCache
    _partition: Partition
    _subgraphs: GpuSubgraphs

    def record_call(
        self, state: GpuState, rows: int, part: Literal["whole", "body"] = "whole", outputs: Sequence[str] | None = None
    ) -> tuple[CallRows, list[BoundDispatch]]:
        """Return what a call with so many rows of one sequence submits, and its rows; nothing runs.

        Parameters
        ----------
        part : ``"body"``: without the steps that only the last row needs
        outputs : names of the outputs to compute; None: all

        Raises
        ------
        DeviceError : a call has not so many rows
        """
        with self.pool.lock:
            most = self.scratch.rows if part == "body" else min(self.scratch.rows, self.scratch.tail_rows)
            if rows > min(most, self.graph.max_rows or most):
                raise DeviceError(f"a call of this network has at most {most} rows, got {rows}")
            self._subgraphs.prepare([rows])
            counted = self.recordings.count([SequenceSpan(state.pages.line, 0, rows)])
            numbers = None if outputs is None else [self._partition.outputs[name] for name in outputs]
            needed = None if numbers is None else self.recordings.needed_segments(numbers)
            return counted, self.recordings.calls(part, counted, needed)

    def row_ports(self) -> tuple[dict[str, RowPort], dict[str, RowPort]]:
        """Return where the rows of inputs and of outputs are, by name."""

        def port(i: int) -> RowPort:
            tensor = self.graph.tensors[i]
            buffer = self.scratch.buffers[self.scratch.values[i]]
            return RowPort(buffer, tensor.shape[1:], tensor.dtype, row_bytes(tensor))

        inputs, outputs = self._partition.inputs, self._partition.outputs
        return {name: port(i) for name, i in inputs.items()}, {name: port(i) for name, i in outputs.items()}

    @property
    def most_positions(self) -> int | None:
        """Most rows of a sequence; None: it has no end."""
        if is_endless(self.plan):
            return None
        return min(self.options.context, self._partition.positions or self.options.context)
