"""A buffer that the host maps, as large as the largest result so far."""

from __future__ import annotations

from typing import Any

from volumetric.devices.gpu.gpu_context import GpuContext


class ReadbackBuffer:
    """Grows as needed; created on first use."""

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._buffer: Any = None

    def of(self, size: int) -> Any:
        """Return a buffer of at least so many bytes; the earlier one is freed if it is too small."""
        if self._buffer is None or self._buffer.size < size:
            self.close()
            self._buffer = self._context.buffer(size, "results", read=True)
        return self._buffer

    def close(self) -> None:
        """Free the buffer."""
        if self._buffer is not None:
            self._context.free(self._buffer)
            self._buffer = None
