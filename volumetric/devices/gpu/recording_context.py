"""RecordingContext: a GPU that is not here. Buffers keep their contents, and bound dispatches are plain data.

Everything that records on an open GPU records on this one: executables, programs of graphs, populations. Nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, UnsupportedError
from volumetric.base.registry import redefinitions
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.dispatch_binding import (
    bound_slices,
    buffer_bytes,
    check_workgroup_memory,
    idle_place,
    link_for,
)
from volumetric.devices.gpu.gpu_commands import Command
from volumetric.devices.gpu.gpu_context import BoundDispatch, BufferSlice
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, Caps, Dispatch
from volumetric.devices.gpu.shaders import Binding, LinkedShader
from volumetric.devices.gpu.shaders.dialects import Dialect
from volumetric.devices.gpu.tuning_cache import TuningCache

_COPIED: Final = 1 << 16
"""Bytes up to which written arrays are copied; larger ones, which are weights, are kept as they are."""


class RecordedBuffer:
    """A buffer of another machine.

    Attributes
    ----------
    label : what it is for
    size : bytes
    uniform : whether it is bound as uniforms, too
    parts : (offset, bytes written there), in the order of the writes; everything else is zeros
    """

    __slots__ = ("label", "parts", "size", "uniform")

    def __init__(self, size: int, label: str, *, uniform: bool) -> None:
        self.size, self.label, self.uniform = size, label, uniform
        self.parts: list[tuple[int, NDArray[np.uint8]]] = []

    def contents(self) -> NDArray[np.uint8]:
        """Return the bytes up to the last one written."""
        end = max((at + part.size for at, part in self.parts), default=0)
        if len(self.parts) == 1 and not self.parts[0][0]:
            return self.parts[0][1]
        whole = np.zeros(end, np.uint8)
        for at, part in self.parts:
            whole[at : at + part.size] = part
        return whole


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """The buffers that a dispatch is bound to, by the indices of the bindings."""

    slices: tuple[tuple[int, BufferSlice], ...]


class RecordingContext:
    """A `GpuContext` that opens no GPU.

    Parameters
    ----------
    caps : capabilities of the machine that will replay
    dialect : of WGSL that its compiler reads
    features : features of WebGPU that it has
    tunings : tunings for it; None: the defaults
    """

    def __init__(
        self,
        caps: Caps,
        *,
        dialect: Dialect = "tint",
        features: frozenset[str] = frozenset(),
        alignment: int = 256,
        tunings: TuningCache | None = None,
    ) -> None:
        self.caps: Caps = caps
        self.features: frozenset[str] = features
        self.software: bool = False
        self.tunings: TuningCache = tunings or TuningCache("another machine")
        self.allocated: int = 0
        self._dialect: Dialect = dialect
        self._alignment = alignment
        self._linked: dict[object, LinkedShader] = {}
        self._arguments = RecordedBuffer(0, "arguments", uniform=True)
        self._uniforms: dict[bytes, BufferSlice] = {}
        self._idle: dict[int, RecordedBuffer] = {}

    @property
    def alignment(self) -> int:
        """Required alignment of the offset of a storage binding, in bytes."""
        return self._alignment

    def buffer(self, nbytes: int, label: str, *, uniform: bool = False, read: bool = False) -> RecordedBuffer:
        """Return a zeroed buffer. Raises `DeviceError` if it exceeds a binding."""
        size = buffer_bytes(nbytes, label, self.caps, uniform=uniform, read=read)
        self.allocated += size
        return RecordedBuffer(size, label, uniform=uniform)

    def free(self, buffer: RecordedBuffer) -> None:
        """Count a buffer as free. Recorded calls may name it, so it keeps its contents."""
        self.allocated -= buffer.size

    def write(self, buffer: RecordedBuffer, data: NDArray[Any], offset: int = 0) -> None:
        """Set bytes of a buffer; large arrays must not change afterwards."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if raw.size % 4:
            raw = np.pad(raw, (0, 4 - raw.size % 4))
        if offset + raw.size > buffer.size:
            raise DeviceError(f"{raw.size} bytes at {offset} exceed {buffer.label} of {buffer.size} bytes")
        covered = [part for part in buffer.parts if offset <= part[0] and part[0] + part[1].size <= offset + raw.size]
        for part in covered:
            buffer.parts.remove(part)
        if raw.size:
            buffer.parts.append((offset, raw.copy() if raw.size <= _COPIED else raw))

    def upload(self, data: NDArray[Any], label: str) -> RecordedBuffer:
        """Return a new buffer with the contents `data`."""
        buffer = self.buffer(data.nbytes, label)
        self.write(buffer, data)
        return buffer

    def read(self, buffer: RecordedBuffer, nbytes: int, offset: int = 0) -> NDArray[np.uint8]:
        """Return bytes that were written to a buffer; nothing else ever is in it."""
        values = np.zeros(buffer.size, np.uint8)
        contents = buffer.contents()
        values[: contents.size] = contents
        return values[offset : offset + nbytes]

    def copy_whole(self, pairs: list[tuple[RecordedBuffer, RecordedBuffer]]) -> None:
        """Copy the contents of each first buffer to the second."""
        for source, target in pairs:
            target.parts = list(source.parts)

    def new_executor(self) -> RecordingExecutor:
        """Return an executor that prepares calls, and submits none."""
        return RecordingExecutor()

    def bind(self, dispatch: Dispatch, buffers: Mapping[str, Any], dims: Sequence[int | float] = ()) -> BoundDispatch:
        """Bind a dispatch: its `pipeline` is the linked module, its `group` a `RecordedGroup`.

        Raises
        ------
        DeviceError : as of an open GPU; or the module needs more than the machine has
        """
        linked = self._link(dispatch)
        slices = bound_slices(linked, dispatch, buffers, dims, uniform=self._uniform, idle=self._idle_at)
        self._check_use(linked, slices)
        group = RecordedGroup(tuple((binding.index, part) for binding, part in slices))
        return BoundDispatch(linked.name, dispatch.label, linked, group, dispatch.grid, b"")

    def bind_all(self, entries: Iterable[RecordedDispatch], buffers: Mapping[str, Any]) -> list[BoundDispatch]:
        """Bind a recording to buffers by their names in it; raises as `bind`."""
        return [
            self.bind(entry.dispatch, {local: buffers[name] for local, name in entry.buffers.items()}, entry.dims)
            for entry in entries
        ]

    def run(self, calls: list[BoundDispatch], rows: CallRows = ONE_ROW) -> None:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("run a pass")

    def _link(self, dispatch: Dispatch) -> LinkedShader:
        key = (*dispatch.key, redefinitions())
        if key not in self._linked:
            linked = link_for(dispatch, self.caps, self._dialect)
            check_workgroup_memory(linked, self.caps)
            stored = sum(binding.access != "uniform" for binding in linked.bindings)
            if stored > self.caps.max_storage_buffers:
                raise DeviceError(
                    f"{linked.name} binds {stored} storage buffers; this GPU binds at most "
                    f"{self.caps.max_storage_buffers}"
                )
            self._linked[key] = linked
        return self._linked[key]

    def _check_use(self, linked: LinkedShader, slices: list[tuple[Binding, BufferSlice]]) -> None:
        """Raise if a buffer is read and written: WebGPU forbids it for the whole buffer, whatever the parts."""
        written = {id(part.buffer) for binding, part in slices if binding.access == "read_write"}
        for binding, part in slices:
            if binding.access != "read_write" and id(part.buffer) in written:
                raise DeviceError(f"{linked.name} reads and writes one buffer, {part.buffer.label}")

    def _idle_at(self, binding: Binding) -> RecordedBuffer:
        return self._idle.setdefault(idle_place(binding), RecordedBuffer(256, "unused binding", uniform=True))

    def _uniform(self, words: bytes) -> BufferSlice:
        """Part of one buffer with these words, shared by all dispatches with the same ones."""
        if words not in self._uniforms:
            start, size = self._arguments.size, max(-(-len(words) // 16) * 16, 16)
            self._arguments.size += -(-size // self._alignment) * self._alignment
            self.write(self._arguments, np.frombuffer(words, np.uint8), start)
            self._uniforms[words] = BufferSlice(self._arguments, start, size)
        return self._uniforms[words]


class RecordingExecutor:
    """An `Executor` whose prepared calls are the calls themselves."""

    def prepare(self, calls: Sequence[BoundDispatch]) -> tuple[BoundDispatch, ...]:
        """Return the calls."""
        return tuple(calls)

    def submit(self, commands: Sequence[Command]) -> int:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("submit commands")

    def begin(self, commands: Sequence[Command]) -> Any:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("encode commands")

    def record(self, commands: Sequence[Command]) -> Any:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("encode commands")

    def send(self, begun: Any) -> int:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("submit commands")

    def must_be_sent(self, begun: Any) -> bool:
        """Return False: nothing is encoded."""
        return False

    def discard(self, begun: Any) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def read(self, buffer: Any, nbytes: int, submission: int) -> bytearray:
        """Raise `UnsupportedError`: there is no GPU."""
        raise _not_here("read results")


def buffers_of(calls: Iterable[BoundDispatch]) -> Iterator[RecordedBuffer]:
    """Yield the buffers that recorded calls are bound to, in order."""
    for call in calls:
        for _, part in call.group.slices:
            yield part.buffer


def _not_here(doing: str) -> UnsupportedError:
    return UnsupportedError(f"a recording for another machine cannot {doing}", hint="use device='gpu' to run here")
