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
from volumetric.runtime.gpu.context import Call, GpuContext, Slice
from volumetric.runtime.gpu.graph.fusing import fuse_folds, fuse_windows
from volumetric.runtime.gpu.graph.memory import Pool, Storage
from volumetric.runtime.gpu.graph.store import GpuStore
from volumetric.runtime.graph.ids import id_bounds
from volumetric.runtime.graph.ops import Graph, Node
from volumetric.runtime.graph.passes import fuse_trials

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
        self._kept = _Kept(executor)
        # Programs are dropped without a word; what they own must not count as in use until a collector comes by.
        self._release = weakref.finalize(self, _free, context, self._pool, self._kept)
        try:
            storage = Storage(context, graph, store, self._pool)
            self.calls = self._record(storage, bind)
            self._inputs = storage.upload
            self._commands = self._after(storage)
        except Exception:
            self.close()
            raise

    @property
    def scratch_bytes(self) -> int:
        """GPU memory of inputs, constants, scratch and outputs."""
        return sum(buffer.size for buffer in (*self._pool.owned, *self._kept.staging))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Upload the inputs, run all nodes, and return the graph's outputs; without any, it does not wait.

        Raises
        ------
        ShapeError : an input has another shape or kind of number, or an id is out of range
        DeviceError : the GPU failed
        """
        self._inputs.write(self._checked(inputs))
        begun, self._kept.begun = self._kept.begun, None
        number = self._executor.submit(self._commands) if begun is None else self._executor.send(begun)
        if not self.graph.outputs:
            return []
        # Every run has the same commands: those of the next one are recorded while the GPU is at work on these.
        self._kept.begun = self._executor.record(self._commands)
        return self._read(number)

    def submit(self, inputs: Sequence[Array]) -> None:
        """Upload the inputs and start a run, without waiting for it."""
        self._inputs.write(self._checked(inputs))
        self._executor.submit(self._commands)

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
        commands: list[Command] = [Pass(self._executor.prepare(self.calls))] if self.calls else []
        offsets, end = {}, 0
        for i in dict.fromkeys(self.graph.outputs):
            offsets[i] = end
            end += 4 * self.graph.tensors[i].size
        if end:
            self._kept.staging.append(self._context.buffer(end, "outputs", read=True))
            commands += [
                copy(storage[i], self._kept.staging[0], at, 4 * self.graph.tensors[i].size)
                for i, at in offsets.items()
                if self.graph.tensors[i].size
            ]
        self._offsets, self._output_bytes = offsets, end
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
        for bound in self._bounds.get(i, ()):
            wrong = bound.wrong(value)
            if wrong.size:
                raise ShapeError(f"{self.graph.tensors[i].name}: id {wrong[0]} is outside of 0 … {bound.below - 1}")

    def _read(self, submission: int) -> list[Array]:
        """All outputs, after one wait."""
        data = bytearray()
        if self._output_bytes:
            data = self._executor.read(self._kept.staging[0], self._output_bytes, submission)
        tensors = [(self.graph.tensors[i], self._offsets[i]) for i in self.graph.outputs]
        found = [np.frombuffer(data, t.dtype, t.size, at).reshape(t.shape) for t, at in tensors]
        # An array of its own each: the caller may write to one, and must not keep the others alive by it.
        return found if len(found) == 1 else [value.copy() for value in found]


def copy(source: Any, target: Any, offset: int, nbytes: int) -> Copy:
    """Copy a buffer, or a part of one, to a place in another."""
    part = source if isinstance(source, Slice) else Slice(source, 0, nbytes)
    return Copy(part.buffer, part.offset, target, offset, nbytes)


class _Kept:
    """What a program gives back when it is dropped, besides its pool."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.staging: list[Any] = []
        self.begun: Any = None


def _free(context: GpuContext, pool: Pool, kept: _Kept) -> None:
    if kept.begun is not None:
        kept.executor.discard(kept.begun)
        kept.begun = None
    pool.close()
    for buffer in kept.staging:
        context.free(buffer)
    kept.staging.clear()
