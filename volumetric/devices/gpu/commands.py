"""Commands: what a submission does, and how calls are encoded with plain wgpu-py calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from volumetric.devices.gpu.context import Call
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, Rows


@dataclass(frozen=True, slots=True)
class Pass:
    """One compute pass over prepared calls, for so many rows."""

    prepared: Any
    rows: Rows = ONE_ROW


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy bytes from one buffer to another."""

    source: Any
    source_offset: int
    target: Any
    target_offset: int
    nbytes: int


Command: TypeAlias = Pass | Copy


class Executor(Protocol):
    """Submits commands, as `native` does by prepared calls."""

    def prepare(self, calls: Sequence[Call]) -> Any:
        """Turn recorded calls into what `Pass` holds."""
        ...

    def submit(self, commands: Sequence[Command]) -> int:
        """Encode and submit; returns a number for `read`."""
        ...

    def begin(self, commands: Sequence[Command]) -> Any:
        """Encode commands, as far ahead as the executor can, for one later `send`."""
        ...

    def record(self, commands: Sequence[Command]) -> Any:
        """As `begin`, but less far ahead, so that `discard` can drop it."""
        ...

    def send(self, begun: Any) -> int:
        """Submit what `begin` or `record` returned; returns a number for `read`."""
        ...

    def must_be_sent(self, begun: Any) -> bool:
        """Whether what `begin` returned was not sent, and stays behind for ever unless it is."""
        ...

    def discard(self, begun: Any) -> None:
        """Drop what needs not be sent."""
        ...

    def close(self) -> None:
        """Give back what submitting needed; the next submission would make it again."""
        ...

    def read(self, buffer: Any, nbytes: int, submission: int) -> bytearray:
        """Wait for a submission, and return a copy of bytes of a mappable buffer that it filled."""
        ...


def encode_pass(encoder: Any, calls: Sequence[Call], rows: Rows, limit: int) -> None:
    """Write one compute pass with all `calls`: separate passes would cost three times as much on the GPU."""
    compute = encoder.begin_compute_pass()
    encode_calls(compute, calls, rows, limit)
    compute.end()


def encode_calls(compute: Any, calls: Sequence[Call], rows: Rows, limit: int) -> None:
    """Write `calls` into an open compute pass."""
    for call in calls:
        size = call.grid.size(rows, limit)
        if not size[1]:
            continue  # for rows of a kind that the call has none of
        compute.set_pipeline(call.pipeline)
        compute.set_bind_group(0, call.group)
        if call.immediates:
            # data_offset and data_size have no usable defaults in wgpu-py 0.32
            compute.set_immediates(0, call.immediates, 0, len(call.immediates))
        compute.dispatch_workgroups(*size)
