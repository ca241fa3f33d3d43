"""An executor of plain wgpu-py calls, which works wherever wgpu-py does; the native one must give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from volumetric.devices.gpu.gpu_commands import Command, PassCommand, encode_pass
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.open_gpu import OpenGpu


class PlainExecutor:
    """Plain wgpu-py calls: works wherever wgpu-py does."""

    def __init__(self, context: OpenGpu) -> None:
        self._context = context

    def prepare(self, calls: Sequence[BoundDispatch]) -> Sequence[BoundDispatch]:
        """Nothing to prepare."""
        return calls

    def submit(self, commands: Sequence[Command]) -> int:
        """Encode and submit."""
        context = self._context
        with context.guard("submitting commands"):
            encoder = context.device.create_command_encoder()
            for command in commands:
                if isinstance(command, PassCommand):
                    encode_pass(encoder, command.prepared, command.rows, context.caps.max_groups)
                else:
                    encoder.copy_buffer_to_buffer(
                        command.source, command.source_offset, command.target, command.target_offset, command.nbytes
                    )
            context.queue.submit([encoder.finish()])
        return 0

    def begin(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Nothing is done ahead."""
        return commands

    record = begin

    def send(self, begun: Sequence[Command]) -> int:
        """Encode and submit."""
        return self.submit(begun)

    def must_be_sent(self, begun: Sequence[Command]) -> bool:
        """Nothing stays behind."""
        return False

    def discard(self, begun: Sequence[Command]) -> None:
        """Nothing to drop."""

    def close(self) -> None:
        """Nothing to give back."""

    def read(self, buffer: Any, nbytes: int, submission: int) -> bytearray:
        """Map the buffer, which waits for all work so far."""
        with self._context.guard("reading results"):
            buffer.map_sync(self._context.map_read, 0, -(-nbytes // 8) * 8)
            data = bytearray(buffer.read_mapped(0, -(-nbytes // 8) * 8, copy=False)[:nbytes])
            buffer.unmap()
        return data
