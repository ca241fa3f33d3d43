"""A graph bound to its buffers: recorded once, replayed as one compute pass and one submission a run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from volumetric._typing import Array
from volumetric.errors import ShapeError, UnsupportedError
from volumetric.kernels.gpu.graph.launch import Launch, Lowered, Ref, Request
from volumetric.kernels.gpu.graph.table import lower
from volumetric.runtime.gpu.commands import Command, Copy, Executor, Pass
from volumetric.runtime.gpu.context import Call, GpuContext
from volumetric.runtime.gpu.graph.fusing import fuse_folds, fuse_trials, fuse_windows
from volumetric.runtime.gpu.graph.memory import Pool, Storage
from volumetric.runtime.gpu.graph.store import GpuStore
from volumetric.runtime.graph.liveness import roots
from volumetric.runtime.graph.ops import Graph, Node

Binder = Callable[[Launch, dict[str, Any]], Call]
"""Binds a launch to buffers by the shader's names."""


class GpuProgram:
    """Runs one graph on one store.

    Attributes
    ----------
    graph : what it runs, as the GPU does it
    calls : the recorded dispatches, in order
    scratch_bytes : GPU memory of the program besides the store
    """

    def __init__(self, context: GpuContext, graph: Graph, store: GpuStore, executor: Executor, bind: Binder) -> None:
        self._context = context
        self.graph = graph = fuse_trials(fuse_folds(fuse_windows(graph)))
        self._executor = executor
        self._bounds = id_bounds(graph)
        for i, value in graph.constants.items():
            self._check_ids(i, value)
        self._pool = Pool(context)
        self._staging: dict[int, Any] = {}
        self._submission = 0
        # Programs are dropped without a word; what they own must not count as in use until a collector comes by.
        self._release = weakref.finalize(self, _free, context, self._pool, self._staging)
        try:
            storage = Storage(context, graph, store, self._pool)
            self.calls = self._record(storage, bind)
            self._inputs = [storage[i] for i in graph.inputs]
            self._commands = self._after(storage)
        except Exception:
            self.close()
            raise

    @property
    def scratch_bytes(self) -> int:
        """GPU memory of inputs, constants, scratch and outputs."""
        return sum(buffer.size for buffer in (*self._pool.owned, *self._staging.values()))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Upload the inputs, run all nodes, and return the graph's outputs; without any, it does not wait.

        Raises
        ------
        ShapeError : an input has another shape or kind of number, or an id is out of range
        DeviceError : the GPU failed
        """
        self.submit(inputs)
        return [self._read(i) for i in self.graph.outputs]

    def submit(self, inputs: Sequence[Array]) -> None:
        """Upload the inputs and start a run, without waiting for it."""
        for buffer, value in zip(self._inputs, self._checked(inputs), strict=True):
            if value.size:
                self._context.write(buffer, value)
        self._submission = self._executor.submit(self._commands)

    def close(self) -> None:
        """Free the program's own buffers."""
        self._release()

    def _record(self, storage: Storage, bind: Binder) -> list[Call]:
        calls = []
        for at, node in enumerate(self.graph.nodes):
            if node.op == "reshape":
                continue
            storage.begin(at)
            lowered = self._lower(node, storage)
            spare = [self._pool.take(nbytes, "scratch of a node") for nbytes in lowered.scratch]
            places = {
                "input": [storage[i] for i in node.inputs],
                "output": [storage[i] for i in node.outputs],
                "scratch": spare,
            }

            def found(ref: Ref, places: dict[str, list[Any]] = places) -> Any:
                return places[ref.place][ref.number]

            calls += [
                bind(launch, {name: found(ref) for name, ref in launch.buffers.items()})
                for launch in lowered.launches
                if launch.unless_same is None or found(launch.unless_same[0]) is not found(launch.unless_same[1])
            ]
            for buffer in spare:
                self._pool.give(buffer)
            storage.end(at)
        return calls

    def _lower(self, node: Node, storage: Storage) -> Lowered:
        tensors = self.graph.tensors
        request = Request(
            op=node.op,
            inputs=tuple(tensors[i].shape for i in node.inputs),
            outputs=tuple(tensors[i].shape for i in node.outputs),
            attrs=node.attrs,
            integers=tuple(tensors[i].dtype == "int32" for i in node.inputs),
            wanted=tuple(storage.is_wanted(i) for i in node.outputs),
            caps=self._context.caps,
        )
        try:
            return lower(request)
        except UnsupportedError as error:
            where = f" (in {node.where})" if node.where else ""
            raise UnsupportedError(f"{error}{where}", hint=error.hint) from error

    def _after(self, storage: Storage) -> list[Command]:
        """Commands of a run: all dispatches, then the copies of the outputs to where the host can read them."""
        commands: list[Command] = [Pass(self._executor.prepare(self.calls), 1)] if self.calls else []
        for i in dict.fromkeys(self.graph.outputs):
            size = 4 * self.graph.tensors[i].size
            if size:
                self._staging[i] = self._context.buffer(size, "output", read=True)
                commands.append(Copy(storage[i], 0, self._staging[i], 0, size))
        return commands

    def _checked(self, inputs: Sequence[Array]) -> list[Array]:
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise ShapeError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
        found = []
        for i, value in zip(graph.inputs, inputs, strict=True):
            tensor = graph.tensors[i]
            kind = np.integer if tensor.dtype == "int32" else np.floating
            if value.shape != tensor.shape or not np.issubdtype(value.dtype, kind):
                raise ShapeError(
                    f"{tensor.name}: expected {tensor.dtype} of shape {list(tensor.shape)}, "
                    f"got {value.dtype} of shape {list(value.shape)}"
                )
            self._check_ids(i, value)
            found.append(np.ascontiguousarray(value, np.dtype(tensor.dtype)))
        return found

    def _check_ids(self, i: int, value: Array) -> None:
        for high, also in self._bounds.get(i, ()):
            wrong = ((value < 0) | (value >= high)) & (value != also)
            if wrong.any():
                raise ShapeError(f"{self.graph.tensors[i].name}: id {value[wrong][0]} is outside of 0 … {high - 1}")

    def _read(self, i: int) -> Array:
        tensor = self.graph.tensors[i]
        if tensor.size == 0:
            return np.empty(tensor.shape, tensor.dtype)
        data = self._executor.read(self._staging[i], 4 * tensor.size, self._submission)
        return np.frombuffer(bytearray(data), tensor.dtype).reshape(tensor.shape)


def _free(context: GpuContext, pool: Pool, staging: dict[int, Any]) -> None:
    pool.close()
    for buffer in staging.values():
        context.free(buffer)
    staging.clear()


def id_bounds(graph: Graph) -> dict[int, list[tuple[int, int]]]:
    """Integer tensor → for each use of it as ids: one more than the greatest, and another number that is allowed."""
    root = roots(graph)
    found: dict[int, list[tuple[int, int]]] = {}
    for node in graph.nodes:
        if node.op in ("gather_rows", "scatter_rows"):
            table = graph.tensors[node.inputs[0] if node.op == "gather_rows" else node.outputs[0]]
            found.setdefault(root[node.inputs[1]], []).append((table.shape[0], 0))
        elif node.op == "loss" and graph.tensors[node.inputs[1]].dtype == "int32":
            classes = graph.tensors[node.inputs[0]].shape[1]
            found.setdefault(root[node.inputs[1]], []).append((classes, node.attrs["ignore_index"]))
    return found
