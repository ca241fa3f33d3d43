"""What executors with prepared low-level calls share: passes as native handles, recording them, and their submissions.

The C functions that record commands are those of the standard header `webgpu.h`, in every implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from volumetric.devices.gpu.gpu_commands import Command, PassCommand
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels.dispatch import CallRows

CommandSlice: TypeAlias = "tuple[Command, slice]"
"""A command; for a pass only the dispatches in the slice."""

ALL = slice(None)
_FIRST = 16
_GROWTH = 3
_LONGEST = 512
"""Dispatches of the first submission of a call, growth factor of the following ones, and their maximum: the GPU begins
the first while the implementation translates the second, which takes about as long as the GPU takes for it."""


class PreparedPass:
    """Native handles of recorded calls; the calls themselves are stored, as they own the handles."""

    def __init__(self, calls: Sequence[BoundDispatch], ffi: Any, limit: int) -> None:
        self._calls = calls
        self._limit = limit
        self._data = [ffi.from_buffer(call.immediates) if call.immediates else None for call in calls]
        self._sized: tuple[CallRows, list[tuple[Any, ...]]] = (CallRows(0), [])

    def __len__(self) -> int:
        """Number of dispatches."""
        return len(self._calls)

    def rows(self, rows: CallRows) -> list[tuple[Any, ...]]:
        """(pipeline, group, x, y, z, data, size of data) of each call that has work; cached, for use by any thread."""
        sized = self._sized
        if sized[0] != rows:
            table = [
                (c.pipeline._internal, c.group._internal, *size, data, len(c.immediates))
                for c, data in zip(self._calls, self._data, strict=True)
                if (size := c.grid.size(rows, self._limit))[1]
            ]
            self._sized = sized = (rows, table)
        return sized[1]


def submission_slices(commands: Sequence[Command]) -> list[list[CommandSlice]]:
    """Split `commands` into submissions: the first pass into growing parts, if it is long, and the rest."""
    whole: list[CommandSlice] = [(command, ALL) for command in commands]
    first = commands[0] if commands else None
    if not isinstance(first, PassCommand) or len(first.prepared) <= 2 * _FIRST:
        return [whole]
    submissions, at, count = [], 0, _FIRST
    while len(first.prepared) - at > count:
        submissions.append([(first, slice(at, at + count))])
        at, count = at + count, min(count * _GROWTH, _LONGEST)
    return [*submissions, [(first, slice(at, None)), *whole[1:]]]


class CommandRecorder:
    """Records commands with prepared calls; errors in a pass come when its encoder is finished.

    Parameters
    ----------
    ffi, lib : of the implementation's cffi library
    device : native handle
    """

    def __init__(self, ffi: Any, lib: Any, device: Any) -> None:
        self._null, self._lib, self._device = ffi.NULL, lib, device
        self._encoder = ffi.new("WGPUCommandEncoderDescriptor *")
        self._pass = ffi.new("WGPUComputePassDescriptor *")

    def record(self, commands: Sequence[CommandSlice]) -> Any:
        """Record commands; returns the encoder, which is the caller's to finish and to release."""
        lib = self._lib
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, self._encoder)
        for command, part in commands:
            if isinstance(command, PassCommand):
                self._record_pass(encoder, command.prepared.rows(command.rows)[part])
            else:
                lib.wgpuCommandEncoderCopyBufferToBuffer(
                    encoder,
                    command.source._internal,
                    command.source_offset,
                    command.target._internal,
                    command.target_offset,
                    command.nbytes,
                )
        return encoder

    def _record_pass(self, encoder: Any, table: list[tuple[Any, ...]]) -> None:
        lib, null = self._lib, self._null
        set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        set_data, dispatch = lib.wgpuComputePassEncoderSetImmediates, lib.wgpuComputePassEncoderDispatchWorkgroups
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, self._pass)
        last = None
        for pipeline, group, x, y, z, data, size in table:
            if pipeline is not last:
                set_pipeline(compute, pipeline)
                last = pipeline
            set_group(compute, 0, group, 0, null)
            if size:
                set_data(compute, 0, data, size)
            dispatch(compute, x, y, z)
        lib.wgpuComputePassEncoderEnd(compute)
        lib.wgpuComputePassEncoderRelease(compute)
