"""OpenGpu: device, queue, buffers, pipelines of one GPU. Errors of WebGPU are converted to `DeviceError`."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import DeviceError, VolumetricError
from volumetric.base.registry import redefinitions
from volumetric.devices.gpu.adapters import GpuAdapter
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.dispatch_binding import (
    argument_words,
    bound_slices,
    buffer_bytes,
    check_workgroup_memory,
    idle_place,
    link_for,
)
from volumetric.devices.gpu.gpu_context import BoundDispatch, Pipeline
from volumetric.devices.gpu.kernels.dispatch import MATRIX_LANES, ONE_ROW, CallRows, Caps, Dispatch, WorkgroupGrid
from volumetric.devices.gpu.shaders import Binding, LinkedShader, loop_rounds_bound
from volumetric.devices.gpu.tuning_cache import TuningCache
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, WebGpu, webgpu

_WANTED_FEATURES = frozenset({"subgroups", "immediates", "timestamp-query"})
_MATRIX_FEATURES = frozenset({"matrix-units", "shader-f16"})
_UPLOAD_CHUNK = 32 << 20
_UPLOAD_FLUSH = 256 << 20
_SUBGROUP_UNKNOWN = (4, 128)
"""Range that is reported if the driver states none; the real size is then fixed and is measured."""
_PROBED_ROUNDS = 1 << 17
"""More than the 65,535 of llvmpipe; a GPU runs them in a millisecond or two."""


class WgpuErrorScope:
    """Converts errors of wgpu to `DeviceError`. A class for speed: a small program's run enters it several times."""

    __slots__ = ("_context", "_doing")

    def __init__(self, context: OpenGpu, doing: str) -> None:
        self._context, self._doing = context, doing

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            other = self._context.error(error, self._doing)
            if other is not None:
                # Frames of wgpu hold memoryviews, and Python 3.11 crashes when it collects one in a cycle.
                traceback.clear_frames(error.__traceback__)
                raise other from error


class OpenGpu:
    """Resources of one open GPU: a `GpuContext`.

    Parameters
    ----------
    adapter : from `ranked_adapters`
    implementation : name of the WebGPU implementation that opens it, one of its `offers`
    narrow : fields of `Caps` to lower, so that tests cover the paths of weaker devices

    Raises
    ------
    DeviceError : the adapter provides no device
    """

    def __init__(self, adapter: GpuAdapter, implementation: str, narrow: Mapping[str, Any] | None = None) -> None:
        self.webgpu: WebGpu = webgpu(implementation)
        offer, flags = adapter.offers[implementation], self.webgpu.flags
        self._usage = flags.BufferUsage
        self.map_read: Any = flags.MapMode.READ
        self.query_usage: Any = self._usage.QUERY_RESOLVE | self._usage.COPY_SRC
        self._errors = (flags.GPUError, RuntimeError)
        self._out_of_memory = flags.GPUOutOfMemoryError
        self.allocated: int = 0
        self._staged = 0
        features = self.webgpu.features(offer)
        units = self.webgpu.has_matrix_units(offer)
        self.features: frozenset[str] = features & (_WANTED_FEATURES | (_MATRIX_FEATURES if units else frozenset()))
        with self.guard("opening the GPU"):
            self.device: Any = self.webgpu.open(offer, self.features)
        self.queue: Any = self.device.queue
        self.software: bool = adapter.is_software
        # of wgpu without its name: such files are there
        of_other = "" if implementation == NAMES[0] else f"{implementation} "
        self.tunings: TuningCache = TuningCache(of_other + adapter.identity)
        self._pipelines: dict[object, Pipeline] = {}
        self._layouts: dict[object, Any] = {}
        self._uniforms: dict[bytes, Any] = {}
        self._idle: dict[int, Any] = {}
        self.caps = _caps(offer.limits, self.features, software=self.software)
        self.caps = replace(self.caps, subgroup_size=self._certain_lanes(offer))
        self.caps = replace(self.caps, matrix_units=units and self.caps.subgroup_size == MATRIX_LANES)
        self.caps: Caps = replace(self.caps, **{"max_rounds": self._most_rounds(), **(narrow or {})})

    def guard(self, doing: str) -> WgpuErrorScope:
        """Convert errors of wgpu to `DeviceError`; `doing` is the activity to name in the message."""
        return WgpuErrorScope(self, doing)

    def error(self, error: BaseException, doing: str) -> DeviceError | None:
        """Return the exception to raise for an error of wgpu; None if it is another error."""
        if isinstance(error, self._out_of_memory):
            return DeviceError(
                f"out of GPU memory while {doing}; {self.allocated >> 20} MiB are in use by this process",
                hint="use a smaller dtype such as int4, or a smaller context",
            )
        if not isinstance(error, self._errors) or isinstance(error, VolumetricError):
            return None
        if "lost" in str(error).lower():
            return DeviceError(f"the GPU was lost while {doing}", hint="open the device again")
        return DeviceError(f"GPU error while {doing}: {self.webgpu.cause(str(error)) or type(error).__name__}")

    def buffer(self, nbytes: int, label: str, *, uniform: bool = False, read: bool = False) -> Any:
        """Create a zeroed buffer for storage (and uniforms), or with `read` one that the host can map.

        Raises
        ------
        DeviceError : the buffer exceeds the device's limit or its memory
        """
        size = buffer_bytes(nbytes, label, self.caps, uniform=uniform, read=read)
        usage = self._usage.MAP_READ | self._usage.COPY_DST
        if not read:
            usage = self._usage.STORAGE | self._usage.COPY_DST | self._usage.COPY_SRC
            usage |= self._usage.UNIFORM if uniform else 0
        with self.guard(f"allocating {size >> 10} KiB for {label}"):
            buffer = self.device.create_buffer(label=label, size=size, usage=usage)
        self.allocated += size
        return buffer

    def free(self, buffer: Any) -> None:
        """Release a buffer's memory now."""
        self.allocated -= buffer.size
        buffer.destroy()

    def write(self, buffer: Any, data: NDArray[Any], offset: int = 0) -> None:
        """Copy an array into a buffer, in parts that bound the staging memory of all copies."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if raw.size % 4:
            raw = np.pad(raw, (0, 4 - raw.size % 4))
        with self.guard("writing a buffer"):
            for start in range(0, raw.size, _UPLOAD_CHUNK):
                part = raw[start : start + _UPLOAD_CHUNK]
                self.queue.write_buffer(buffer, offset + start, part)
                self._staged += part.size
                if self._staged >= _UPLOAD_FLUSH:
                    self.queue.submit([])
                    self._staged = 0

    def upload(self, data: NDArray[Any], label: str) -> Any:
        """Return a new buffer with the contents `data`."""
        buffer = self.buffer(data.nbytes, label)
        self.write(buffer, data)
        return buffer

    def read(self, buffer: Any, nbytes: int, offset: int = 0) -> NDArray[np.uint8]:
        """Wait for the GPU and return bytes of a buffer."""
        with self.guard("reading a buffer back"):
            data = self.queue.read_buffer(buffer, offset, -(-nbytes // 4) * 4)
        return np.frombuffer(data, np.uint8)[:nbytes]

    @property
    def alignment(self) -> int:
        """Required alignment of the offset of a storage binding, in bytes."""
        return self.device.limits["min-storage-buffer-offset-alignment"]

    @property
    def timestamp_seconds(self) -> float:
        """Seconds of one tick of a timestamp query."""
        return self.webgpu.timestamp_seconds(self.queue)

    def new_executor(self) -> Any:
        """Return an executor with prepared calls."""
        return self.webgpu.executor(self)

    def copy_whole(self, pairs: list[tuple[Any, Any]]) -> None:
        """Copy each first buffer over the second, which has the same size."""
        with self.guard("copying buffers"):
            encoder = self.device.create_command_encoder()
            for source, target in pairs:
                encoder.copy_buffer_to_buffer(source, 0, target, 0, source.size)
            self.queue.submit([encoder.finish()])

    def pipeline(self, dispatch: Dispatch) -> Pipeline:
        """Compile the kernel of `dispatch`, once for each key."""
        key = (*dispatch.key, redefinitions())
        if key not in self._pipelines:
            self._pipelines[key] = self._compile(self._link(dispatch))
        return self._pipelines[key]

    def compile_all(self, dispatches: Iterable[Dispatch]) -> None:
        """Compile the kernels of `dispatches` that are not compiled yet, several at the same time.

        A driver takes up to 0.1 s for one. Those that fail are left to `pipeline`, which says why.
        """
        missing: dict[object, LinkedShader] = {}
        for dispatch in dispatches:
            key = (*dispatch.key, redefinitions())
            if key not in self._pipelines and key not in missing:
                missing[key] = self._link(dispatch)
        if len(missing) < 2 or any(linked.workgroup_bytes > self.caps.max_shared for linked in missing.values()):
            return
        try:
            with self.guard("compiling kernels"):
                requests = [self._pipeline_request(linked) for linked in missing.values()]
                pipelines = self.webgpu.create_pipelines(self.device, requests)
        except (DeviceError, RuntimeError):
            return
        for (key, linked), pipeline in zip(missing.items(), pipelines, strict=True):
            self._pipelines[key] = Pipeline(linked, self._layout_of(linked), pipeline)

    def _link(self, dispatch: Dispatch) -> LinkedShader:
        return link_for(dispatch, self.caps, self.webgpu.dialect)

    def _compile(self, linked: LinkedShader) -> Pipeline:
        check_workgroup_memory(linked, self.caps)
        with self.guard(f"compiling {linked.name}"):
            pipeline = self.device.create_compute_pipeline(**self._pipeline_request(linked))
            return Pipeline(linked, self._layout_of(linked), pipeline)

    def _pipeline_request(self, linked: LinkedShader) -> dict[str, Any]:
        """Return the arguments of WebGPU's call that makes a pipeline."""
        whole = self.device.create_pipeline_layout(
            bind_group_layouts=[self._layout_of(linked)],
            immediate_size=linked.args_bytes if self.caps.immediates else 0,
        )
        module = self.webgpu.create_module(self.device, linked.name, linked.text)
        return {"label": linked.name, "layout": whole, "compute": {"module": module, "entry_point": "main"}}

    def _layout_of(self, linked: LinkedShader) -> Any:
        return self._layout(tuple((b.index, b.access) for b in linked.bindings))

    def _layout(self, bindings: tuple[tuple[int, str], ...]) -> Any:
        if bindings not in self._layouts:
            kinds = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}
            self._layouts[bindings] = self.device.create_bind_group_layout(
                entries=[
                    {"binding": index, "visibility": 4, "buffer": {"type": kinds[access]}} for index, access in bindings
                ]
            )
        return self._layouts[bindings]

    def bind_all(self, entries: Iterable[RecordedDispatch], buffers: Mapping[str, Any]) -> list[BoundDispatch]:
        """Bind a recording to buffers by their names in it; raises as `bind`."""
        entries = list(entries)
        self.compile_all(entry.dispatch for entry in entries)
        return [
            self.bind(entry.dispatch, {local: buffers[name] for local, name in entry.buffers.items()}, entry.dims)
            for entry in entries
        ]

    def bind(self, dispatch: Dispatch, buffers: Mapping[str, Any], dims: Sequence[int | float] = ()) -> BoundDispatch:
        """Bind a dispatch to `buffers`, by the shader's names. Missing optional bindings get an idle buffer.

        Buffers for bindings that this variant of the shader does not need are not bound.

        Parameters
        ----------
        dims : contents of the uniform ``dims``, for kernels that read their sizes from it

        Raises
        ------
        DeviceError : loops need more rounds than the driver runs; the shader does not declare a name; or a buffer would
            be bound to two writable bindings, which wgpu accepts and WebGPU forbids
        """
        pipeline = self.pipeline(dispatch)
        linked = pipeline.linked
        self._check_rounds(linked, dims)
        slices = bound_slices(linked, dispatch, buffers, dims, uniform=self._uniform, idle=self._idle_at)
        entries = [
            {"binding": binding.index, "resource": {"buffer": part.buffer, "offset": part.offset, "size": part.size}}
            for binding, part in slices
        ]
        with self.guard(f"binding {linked.name}"):
            group = self.device.create_bind_group(label=linked.name, layout=pipeline.layout, entries=entries)
        immediates = argument_words(dispatch) if self.caps.immediates and linked.args_bytes else b""
        return BoundDispatch(linked.name, dispatch.label, pipeline.pipeline, group, dispatch.grid, immediates)

    def _check_rounds(self, linked: LinkedShader, dims: Sequence[int | float]) -> None:
        if self.caps.max_rounds and (needed := loop_rounds_bound(linked.text, dims)) > self.caps.max_rounds:
            raise DeviceError(
                f"{linked.name} needs {needed} loop rounds; this GPU's driver stops after "
                f"{self.caps.max_rounds} without an error, and the result would be wrong",
                hint="use a shorter context or smaller sizes, or device='cpu'",
            )

    def _idle_at(self, binding: Binding) -> Any:
        """An unused buffer."""
        place = idle_place(binding)
        if place not in self._idle:
            self._idle[place] = self.buffer(256, "unused binding", uniform=True)
        return self._idle[place]

    def _uniform(self, words: bytes) -> Any:
        """Uniform buffer with these arguments or sizes, shared by all dispatches with the same contents."""
        if words not in self._uniforms:
            self._uniforms[words] = self.buffer(len(words), "arguments", uniform=True)
            self.write(self._uniforms[words], np.frombuffer(words, np.uint32))
        return self._uniforms[words]

    def _most_rounds(self) -> int:
        """Rounds after which the driver ends a loop, 0 if it runs `_PROBED_ROUNDS`."""
        probe = Dispatch(kernel="probe_rounds", grid=WorkgroupGrid(x=1), constants={"ROUNDS": _PROBED_ROUNDS})
        buffer = self.buffer(16, "probe of loops")
        self.run([self.bind(probe, {"found": buffer})])
        reached = int(self.read(buffer, 4).view(np.uint32)[0])
        self.free(buffer)
        return 0 if reached >= _PROBED_ROUNDS else reached

    def _certain_lanes(self, offer: Any) -> int:
        """Smallest subgroup size; 0 without subgroups or if lanes are not neighbouring invocations."""
        if "subgroups" not in self.features:
            return 0
        low, high = self.webgpu.subgroup_sizes(offer)
        probe = Dispatch(kernel="probe_subgroup", grid=WorkgroupGrid(x=1), constants={"WG": 128})
        buffer = self.buffer(4 * 128 * 2, "subgroup probe")
        self.run([self.bind(probe, {"found": buffer})])
        size, lane = self.read(buffer, 1024).view(np.uint32).reshape(128, 2).T
        self.free(buffer)
        if np.any(lane != np.arange(128) % size[0]) or np.any(size != size[0]):
            return 0
        return int(size[0]) if low == high or (low, high) == _SUBGROUP_UNKNOWN else int(low)

    def run(self, calls: list[BoundDispatch], rows: CallRows = ONE_ROW) -> None:
        """Submit `calls` in one compute pass."""
        from volumetric.devices.gpu.gpu_commands import encode_pass

        with self.guard("running a pass"):
            encoder = self.device.create_command_encoder()
            encode_pass(encoder, calls, rows, self.caps.max_groups)
            self.queue.submit([encoder.finish()])


def _caps(limits: Mapping[str, int], features: frozenset[str], *, software: bool) -> Caps:
    return Caps(
        immediates="immediates" in features,
        max_workgroup=min(limits["max-compute-invocations-per-workgroup"], limits["max-compute-workgroup-size-x"]),
        max_shared=limits["max-compute-workgroup-storage-size"],
        max_storage_buffers=limits["max-storage-buffers-per-shader-stage"],
        max_binding=min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"]),
        max_groups=limits["max-compute-workgroups-per-dimension"],
        # A software adapter has a few threads: finer splitting only adds overhead.
        invocations=2048 if software else 131072,
        unroll=2 if software else 32,
    )
