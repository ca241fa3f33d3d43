"""Commands: the contents of a submission, and encoding of calls through wgpu-py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows


@dataclass(frozen=True, slots=True)
class PassCommand:
    """One compute pass over prepared calls, for a number of rows."""

    prepared: Any
    rows: CallRows = ONE_ROW


@dataclass(frozen=True, slots=True)
class CopyCommand:
    """Copy bytes from one buffer to another."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


Command: TypeAlias = PassCommand | CopyCommand


class Executor(Protocol):
    """Submits commands through wgpu-py; `native` has a faster one with prepared calls."""

    def prepare(self, calls: Sequence[BoundDispatch]) -> Any:
        """Convert recorded calls to the form that `PassCommand` holds."""
        ...

    def submit(self, commands: Sequence[Command]) -> int:
        """Encode and submit; returns a number for `read`."""
        ...

    def begin(self, commands: Sequence[Command]) -> Any:
        """Encode commands for one later `send`, as far ahead as the executor can."""
        ...

    def record(self, commands: Sequence[Command]) -> Any:
        """Like `begin`, but less far ahead, so that `discard` can drop it."""
        ...

    def send(self, begun: Any) -> int:
        """Submit the result of `begin` or `record`; returns a number for `read`."""
        ...

    def must_be_sent(self, begun: Any) -> bool:
        """Whether the result of `begin` was not sent, and would leak unless it is sent."""
        ...

    def discard(self, begun: Any) -> None:
        """Drop commands that need not be sent."""
        ...

    def close(self) -> None:
        """Free the resources of submissions; the next submission would create them again."""
        ...

    def read(self, buffer: Any, nbytes: int, submission: int) -> bytearray:
        """Wait for a submission, and return a copy of bytes of a mappable buffer that it filled."""
        ...


def encode_pass(encoder: Any, calls: Sequence[BoundDispatch], rows: CallRows, limit: int) -> None:
    """Write one compute pass with all `calls`: separate passes would cost three times as much on the GPU."""
    compute = encoder.begin_compute_pass()
    encode_calls(compute, calls, rows, limit)
    compute.end()


def encode_calls(compute: Any, calls: Sequence[BoundDispatch], rows: CallRows, limit: int) -> None:
    """Write `calls` into an open compute pass."""
    for call in calls:
        size = call.grid.size(rows, limit)
        if not size[1]:
            continue  # for rows of a kind that the call does not have
        compute.set_pipeline(call.pipeline)
        compute.set_bind_group(0, call.group)
        if call.immediates:
            # data_offset and data_size have no usable defaults in wgpu-py 0.32
            compute.set_immediates(0, call.immediates, 0, len(call.immediates))
        compute.dispatch_workgroups(*size)
