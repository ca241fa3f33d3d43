"""The fast executor of Dawn: prepared calls, bypassing the Python objects of wgpudawn.

Dawn records which buffers every dispatch uses while it encodes, and translates commands when they are submitted. Both
take about as long. Encoders need no lock of the device, so commands for later are encoded on another thread. They are
submitted on the thread of the call: a wait for results holds the lock of the queue. Finished command buffers that are
dropped are freed, so nothing that was encoded ahead must be sent. A buffer that is mapped waits for the last submission
that writes to it, not for those after.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.gpu_commands import Command, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.prepared_passes import CommandRecorder, CommandSlice, PreparedPass, submission_slices
from volumetric.devices.gpu.webgpu.dawn import THREADS

_ALONE = 32
"""Dispatches that are encoded on the calling thread: handing commands to another thread costs as much."""
_MAP_READ = 1
_WAIT_NANOSECONDS = 100_000_000
"""Longest wait in one call: an interrupt of Python comes between two of them."""


_CommandBuffers: TypeAlias = "deque[Any]"
"""Command buffers in the order of their submission; each is removed when it is submitted or dropped."""


class _CapturedErrors(threading.local):
    """Errors of the series of calls that this thread is in; None outside of one."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, str]] | None = None


_captured = _CapturedErrors()


def _capture_errors(handler: Any) -> None:
    """Let `handler` of wgpudawn keep errors for the series of calls in which they occur.

    Its own list is that of all threads, and released objects empty it.
    """
    if handler.handle_error.__module__ != __name__:
        otherwise = handler.handle_error

        def handle_error(error_type: str, message: str) -> None:
            if _captured.errors is None:
                otherwise(error_type, message)
            else:
                _captured.errors.append((error_type, message))

        handler.handle_error = handle_error


class _DawnCalls:
    """A series of low-level calls; errors in them are raised at the end, as `DeviceError`.

    Dawn reports an error on the thread of the call, while it is running.
    """

    __slots__ = ("_context", "_doing")

    def __init__(self, context: OpenGpu, doing: str) -> None:
        self._context, self._doing = context, doing

    def __enter__(self) -> None:
        _captured.errors = []

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        errors, _captured.errors = _captured.errors, None
        if errors and (error is None or isinstance(error, DeviceError)):
            from wgpudawn.backends.dawn._helpers import ERROR_TYPES, GPUError

            with self._context.guard(self._doing):
                raise ERROR_TYPES.get(errors[0][0], GPUError)(errors[0][1]) from error
        if error is not None:
            with self._context.guard(self._doing):
                raise error


class DawnExecutor:
    """Executor with prepared low-level calls into Dawn."""

    def __init__(self, context: OpenGpu) -> None:
        from wgpudawn.backends.dawn import _api
        from wgpudawn.backends.dawn._ffi import c_callback, callbacks
        from wgpudawn.backends.dawn._helpers import get_wgpu_instance

        ffi, self._lib = _api.ffi, _api.lib
        self._ffi, self._context = ffi, context
        _capture_errors(_api.error_handler)
        self._recorder = CommandRecorder(ffi, self._lib, context.device._internal)
        self._finish_info = ffi.new("WGPUCommandBufferDescriptor *")
        self._encoder: ThreadPoolExecutor | None = None
        self._has_threads = THREADS in context.device.features
        self._sent = self._done = 0
        self._instance = get_wgpu_instance()
        self._wait = ffi.new("WGPUFutureWaitInfo *")
        self._mapped = mapped = list[int]()
        number = callbacks.register(lambda status, *_: mapped.append(int(status)), once=False)
        weakref.finalize(self, callbacks.unregister, number).atexit = False
        self._map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self._map_info.mode = self._lib.WGPUCallbackMode_AllowProcessEvents
        self._map_info.callback = c_callback("WGPUBufferMapCallback")
        self._map_info.userdata1 = number

    def prepare(self, calls: Sequence[BoundDispatch]) -> PreparedPass:
        """Look up the native handles once."""
        return PreparedPass(calls, self._ffi, self._context.caps.max_groups)

    def submit(self, commands: Sequence[Command]) -> int:
        """Encode and submit, in growing parts: the GPU begins the first one while the others are encoded."""
        for part in submission_slices(commands):
            self._send(self._encode(part))
        return self._sent

    def begin(self, commands: Sequence[Command]) -> Future[_CommandBuffers] | _CommandBuffers:
        """Encode commands for a later `send`; long ones on another thread, while this one submits and waits."""
        long = any(isinstance(command, PassCommand) and len(command.prepared) > _ALONE for command in commands)
        if not long or not self._has_threads:
            return self.record(commands)
        if self._encoder is None:
            self._encoder = ThreadPoolExecutor(1, "gpu-encode")
        return self._encoder.submit(self.record, commands)

    def record(self, commands: Sequence[Command]) -> _CommandBuffers:
        """Encode commands for a later `send`."""
        return deque(self._encode(part) for part in submission_slices(commands))

    def send(self, begun: Future[_CommandBuffers] | _CommandBuffers) -> int:
        """Submit the result of `begin` or `record`: in its parts if the GPU has nothing else to do, else in one."""
        buffers = begun.result() if isinstance(begun, Future) else begun
        if self._done == self._sent:
            while buffers:
                self._send(buffers.popleft())
        elif buffers:
            together = list(buffers)
            buffers.clear()
            self._send(*together)
        return self._sent

    def must_be_sent(self, begun: Future[_CommandBuffers] | _CommandBuffers) -> bool:
        """Nothing leaks that is not sent."""
        return False

    def discard(self, begun: Future[_CommandBuffers] | _CommandBuffers) -> None:
        """Drop commands; afterwards no thread uses their buffers."""
        if not isinstance(begun, Future):
            begun.clear()
        elif not begun.cancel():
            wait([begun])

    def close(self) -> None:
        """End the other thread."""
        if self._encoder is not None:
            self._encoder.shutdown()
            self._encoder = None

    def _encode(self, commands: Sequence[CommandSlice]) -> Any:
        """Return a command buffer, which frees itself."""
        lib = self._lib
        with _DawnCalls(self._context, "encoding commands"):
            encoder = self._recorder.record(commands)
            try:
                buffer = lib.wgpuCommandEncoderFinish(encoder, self._finish_info)
            finally:
                lib.wgpuCommandEncoderRelease(encoder)
            return self._ffi.gc(buffer, lib.wgpuCommandBufferRelease)

    def _send(self, *buffers: Any) -> None:
        array = self._ffi.new("WGPUCommandBuffer[]", buffers)
        self._sent += 1
        with _DawnCalls(self._context, "submitting commands"):
            self._lib.wgpuQueueSubmit(self._context.queue._internal, len(buffers), array)

    def read(self, buffer: Any, nbytes: int, submission: int) -> bytearray:
        """Wait for the last submission that writes to `buffer`, and copy bytes out of it."""
        size = -(-nbytes // 8) * 8
        lib, handle = self._lib, buffer._internal
        self._mapped.clear()
        with _DawnCalls(self._context, "reading results"):
            future = lib.wgpuBufferMapAsync(handle, _MAP_READ, 0, size, self._map_info[0])
            try:
                self._wait_for(future)
                if self._mapped != [lib.WGPUMapAsyncStatus_Success]:
                    raise DeviceError("the GPU was lost while reading results", hint="open the device again")
                self._done = max(self._done, submission)
                return bytearray(self._ffi.buffer(lib.wgpuBufferGetConstMappedRange(handle, 0, size), nbytes))
            finally:
                lib.wgpuBufferUnmap(handle)  # ends the mapping after an interrupt, too

    def _wait_for(self, future: Any) -> None:
        lib, wait = self._lib, self._wait
        wait.future, wait.completed = future, False
        while not wait.completed and not self._mapped:
            status = lib.wgpuInstanceWaitAny(self._instance, 1, wait, _WAIT_NANOSECONDS)
            if status not in (lib.WGPUWaitStatus_Success, lib.WGPUWaitStatus_TimedOut):
                return
