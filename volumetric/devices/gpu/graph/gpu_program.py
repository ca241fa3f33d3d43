"""A graph bound to its buffers: recorded once, replayed as one compute pass and one submission per run."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.devices.gpu.buffer_names import BufferNames, binding_error
from volumetric.devices.gpu.command_list import recording
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand, Executor, PassCommand
from volumetric.devices.gpu.gpu_context import BufferSlice, GpuContext
from volumetric.devices.gpu.graph.encode_graph import record_graph, rewrite_for_gpu
from volumetric.devices.gpu.graph.gpu_series import GpuSeries, SeriesColumn, SeriesParts
from volumetric.devices.gpu.graph.input_upload import InputUpload
from volumetric.devices.gpu.graph.packed_tensors import read_packed
from volumetric.devices.gpu.graph.store import GpuStore
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.devices.gpu.profile import call_times
from volumetric.graph.id_ranges import id_bounds
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph
from volumetric.graph.run_series import Carry, PickedRows, SeriesInput, run_one_by_one
from volumetric.run.step_times import StepTime

if TYPE_CHECKING:
    from volumetric.devices.gpu.command_list import GpuRecording
    from volumetric.devices.gpu.gpu_context import BoundDispatch


class GpuProgram:
    """Runs one graph on one store.

    Attributes
    ----------
    graph : the graph after GPU rewrites
    recording : its dispatches as plain data
    calls : the same, bound
    input_parts, output_parts : buffers of inputs and outputs, or parts of buffers, in their order
    scratch_bytes : GPU memory of the program without the store
    """

    def __init__(self, context: GpuContext, graph: Graph, store: GpuStore, executor: Executor) -> None:
        self._context = context
        self._store = store
        for tensor in graph.tensors_by_key.values():
            store.check(tensor)
        packed = graph if store.packed is None else read_packed(graph, store.packed)
        self.graph: Graph
        self.graph = graph = rewrite_for_gpu(packed, context.caps)
        self._executor = executor
        self._bounds = id_bounds(graph)
        for i, value in graph.constants.items():
            self._check_ids(i, value)
        buffer_names = {i: f"input {at}" for at, i in enumerate(graph.inputs)}
        buffer_names |= {i: f"constant {at}" for at, i in enumerate(graph.constants)}
        keyed = {i: f"key {tensor.key}" for i, tensor in enumerate(graph.tensors) if tensor.key is not None}
        slots = BufferNames("scratch", context.caps.max_binding)
        results = _own_results(graph, keyed | buffer_names, slots)
        entries, names = record_graph(graph, keyed | buffer_names | results, slots, context.caps)
        self._own = OwnedBuffers(context)
        self._next_run = _NextRun(executor)
        self._series: dict[tuple[object, ...], GpuSeries] = {}
        # Programs are often dropped without `close`; their buffers must not count as in use until a garbage collection.
        self._release = weakref.finalize(self, _release_run, self._own, self._next_run, self._series)
        try:
            self._own.make_all(slots.sizes)
            self._inputs = InputUpload(context, self._own, [graph.tensors[i] for i in graph.inputs])
            self._write_constants(buffer_names)
            buffers: dict[str, Any] = dict(self._own)
            buffers |= {buffer_names[i]: part for i, part in zip(graph.inputs, self._inputs.parts, strict=True)}
            used = graph.tensors_by_key.keys()
            buffers |= {f"key {key}": store.buffer(key) for key in used}
            self.recording: GpuRecording = recording(entries, buffers)
            self.calls: list[BoundDispatch] = context.bind_all(entries, buffers)
            self.input_parts: list[BufferSlice] = self._inputs.parts
            self.output_parts: list[Any] = [buffers[names[i]] for i in graph.outputs]
            self._commands = self._run_commands(dict(zip(graph.outputs, self.output_parts, strict=True)))
            self._parts: SeriesParts | None = None
            if graph.outputs and all(names[i] in results.values() for i in graph.outputs):
                self._parts = SeriesParts(
                    context=context,
                    executor=executor,
                    entries=entries,
                    calls=self.calls,
                    buffers=buffers,
                    inputs=[(graph.tensors[i], buffer_names[i]) for i in graph.inputs],
                    outputs=[(graph.tensors[i], names[i]) for i in graph.outputs],
                )
        except Exception:
            self.close()
            raise

    @property
    def scratch_bytes(self) -> int:
        """GPU memory of inputs, constants, scratch and outputs."""
        return self._own.nbytes + sum(series.nbytes for series in self._series.values())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Upload the inputs, run all nodes, and return the graph's outputs; without outputs, it does not wait.

        Raises
        ------
        ShapeError : an input has another shape or kind of number, or an id is out of range
        DeviceError : the GPU failed
        """
        values = self._check_inputs(inputs)
        with self._store.lock:
            self._inputs.write(values)
            begun, self._next_run.begun = self._next_run.begun, None
            number = self._executor.submit(self._commands) if begun is None else self._executor.send(begun)
            if not self.graph.outputs:
                return []
            # Every run has the same commands: those of the next one are recorded while the GPU executes these.
            self._next_run.begun = self._executor.record(self._commands)
            return self._read(number)

    def run_series(self, runs: Sequence[Sequence[SeriesInput]], carry: Carry | None = None) -> list[list[Array]]:
        """Do several runs in as few submissions as fit; see `volumetric.graph.run_series.run_series`.

        Raises
        ------
        ShapeError : an input has another shape or kind of number, or an id is out of range; nothing has run then
        DeviceError : the GPU failed
        """
        if self._parts is None or not self.graph.inputs:
            return run_one_by_one(self, runs, carry)
        by_input = zip(self.graph.inputs, self._by_input(runs), strict=True)
        columns = [self._check_column(i, values) for i, values in by_input]
        with self._store.lock:
            resident = {at: self._store.resident(one.table) for at, one in enumerate(columns) if one.table is not None}
            most = GpuSeries.capacity(self._parts, len(runs))
            key = (tuple(one.table is not None for one in columns), carry, most)
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = GpuSeries(self._parts, key[0], carry, most)
            results: list[list[Array]] = []
            for start in range(0, len(runs), most):
                part = [one.runs(start, min(start + most, len(runs))) for one in columns]
                if carry is not None and results:
                    part[carry.input].values[0] = results[-1][carry.output]
                count = len(part[0].values)
                results += series.read(count, series.send(part, resident))
            return results

    def submit(self, inputs: Sequence[Array]) -> None:
        """Upload the inputs and start a run, without waiting for it, nor copying outputs that nobody reads."""
        values = self._check_inputs(inputs)
        with self._store.lock:
            self._inputs.write(values)
            self._executor.submit(self._commands[: len(self.calls) > 0])

    def step_times(self, *, repeats: int = 10) -> list[StepTime]:
        """GPU time of each kind of dispatch of a run on the inputs of the last run; see `call_times`.

        Graph writes to tensors with a key take effect.

        Raises
        ------
        UnsupportedError : the GPU has no timestamps
        """
        with self._store.lock:
            return call_times(self._context, self.calls, ONE_ROW, repeats)

    def close(self) -> None:
        """Free the program's own buffers."""
        self._release()

    def _write_constants(self, buffer_names: Mapping[int, str]) -> None:
        for i, value in self.graph.constants.items():
            tensor = self.graph.tensors[i]
            if 4 * tensor.size > self._context.caps.max_binding:
                raise binding_error(tensor.name, 4 * tensor.size, self._context.caps.max_binding)
            name = self._own.make(buffer_names[i], 4 * tensor.size)
            if value.size:
                self._context.write(self._own[name], value.astype(np.int32 if tensor.dtype == "int32" else np.float32))

    def _run_commands(self, outputs: Mapping[int, Any]) -> list[Command]:
        """Commands of a run: all dispatches, then the copies of the outputs to host-readable memory."""
        commands: list[Command] = [PassCommand(self._executor.prepare(self.calls))] if self.calls else []
        offsets, end = {}, 0
        for i in dict.fromkeys(self.graph.outputs):
            offsets[i] = end
            end += 4 * self.graph.tensors[i].size
        if end:
            staging = self._own[self._own.make("outputs", end, read=True)]
            commands += [
                copy_command(outputs[i], staging, at, 4 * self.graph.tensors[i].size)
                for i, at in offsets.items()
                if self.graph.tensors[i].size
            ]
        self._offsets, self._output_bytes = offsets, end
        return commands

    def _check_inputs(self, inputs: Sequence[Array]) -> list[Array]:
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise ShapeError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
        arrays = []
        for i, value in zip(graph.inputs, inputs, strict=True):
            tensor = graph.tensors[i]
            kind = np.integer if tensor.dtype == "int32" else np.floating
            if value.shape != tensor.shape or not np.issubdtype(value.dtype, kind):
                raise ShapeError(
                    f"{tensor.name}: expected {tensor.dtype} of shape {list(tensor.shape)}, "
                    f"got {value.dtype} of shape {list(value.shape)}"
                )
            self._check_ids(i, value)
            arrays.append(np.ascontiguousarray(value, np.dtype(tensor.dtype)))
        return arrays

    def _by_input(self, runs: Sequence[Sequence[SeriesInput]]) -> list[tuple[SeriesInput, ...]]:
        """Return the values of each input in all runs."""
        wrong = next((inputs for inputs in runs if len(inputs) != len(self.graph.inputs)), None)
        if wrong is not None:
            raise ShapeError(f"the graph takes {len(self.graph.inputs)} inputs, got {len(wrong)}")
        return list(zip(*runs, strict=True))

    def _check_column(self, i: int, values: Sequence[SeriesInput]) -> SeriesColumn:
        """Check the values of an input in all runs of a series, and put them side by side."""
        tensor = self.graph.tensors[i]
        picks = [value for value in values if isinstance(value, PickedRows)]
        arrays = [value for value in values if not isinstance(value, PickedRows)]
        table = picks[0].array if picks else None
        if (picks and arrays) or any(value.array is not table for value in picks):
            raise ShapeError(f"{tensor.name}: all runs of a series pick rows of the same array, or none does")
        forms = {(len(one.ids), *one.array.shape[1:]) for one in picks} | {one.shape for one in arrays}
        dtypes = {value.array.dtype for value in picks[:1]} | {one.dtype for one in arrays}
        kind = np.integer if tensor.dtype == "int32" else np.floating
        if forms != {tensor.shape} or not all(np.issubdtype(dtype, kind) for dtype in dtypes):
            raise ShapeError(
                f"{tensor.name}: expected {tensor.dtype} of shape {list(tensor.shape)}, got "
                + ", ".join(f"{dtype} of shape {list(form)}" for dtype in dtypes for form in sorted(forms))
            )
        if i in self._bounds:
            for value in values:
                self._check_ids(i, value.rows() if isinstance(value, PickedRows) else value)
        if table is None:
            return SeriesColumn(None, np.array(arrays, tensor.dtype))
        ids = np.array([value.ids for value in picks], np.int32)
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(table):
            raise ShapeError(f"{tensor.name}: a row is outside of 0 … {len(table) - 1}")
        return SeriesColumn(table, ids)

    def _check_ids(self, i: int, value: Array) -> None:
        for bound in self._bounds.get(i, ()):
            wrong = bound.wrong(value)
            if wrong.size:
                raise ShapeError(f"{self.graph.tensors[i].name}: id {wrong[0]} is outside of 0 … {bound.below - 1}")

    def _read(self, submission: int) -> list[Array]:
        """Read all outputs, after one wait."""
        data = bytearray()
        if self._output_bytes:
            data = self._executor.read(self._own["outputs"], self._output_bytes, submission)
        tensors = [(self.graph.tensors[i], self._offsets[i]) for i in self.graph.outputs]
        outputs = [np.frombuffer(data, t.dtype, t.size, at).reshape(t.shape) for t, at in tensors]
        # A separate array for each: the caller may write to one, and must not keep the others alive by it.
        return outputs if len(outputs) == 1 else [value.copy() for value in outputs]


def copy_command(source: Any, target: Any, offset: int, nbytes: int) -> CopyCommand:
    """Copy a buffer, or a part of one, into another."""
    part = source if isinstance(source, BufferSlice) else BufferSlice(source, 0, nbytes)
    return CopyCommand(part.buffer, part.offset, target, offset, nbytes)


class _NextRun:
    """Commands of the next run."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.begun: Any = None


def _own_results(graph: Graph, named: Mapping[int, str], slots: BufferNames) -> dict[int, str]:
    """Return a buffer for each output that a node computes and that has none: nothing else is ever in it."""
    roots = view_roots(graph)
    computed = {i for node in graph.nodes for i in node.outputs}
    own = dict.fromkeys(roots[i] for i in graph.outputs)
    return {
        i: slots.new(4 * graph.tensors[i].size, graph.tensors[i].name)
        for i in own
        if i not in named and i in computed and graph.tensors[i].key is None
    }


def _release_run(own: OwnedBuffers, pending: _NextRun, series: dict[tuple[object, ...], GpuSeries]) -> None:
    while series:
        series.popitem()[1].close()
    if pending.begun is not None:
        pending.executor.discard(pending.begun)
        pending.begun = None
    own.close()
