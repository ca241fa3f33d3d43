"""Named buffers of one owner, which frees them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from volumetric.runtime.gpu.context import GpuContext


class Owned(Mapping[str, Any]):
    """Name → buffer.

    Parameters
    ----------
    context : the open GPU
    """

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._buffers: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self._buffers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.size for buffer in self._buffers.values())

    def make(self, name: str, nbytes: int, *, uniform: bool = False, read: bool = False) -> str:
        """Add a buffer and return its name, with a number where another one has it.

        Raises
        ------
        DeviceError : beyond the device's limit or its memory
        """
        unique, number = name, 2
        while unique in self._buffers:
            unique, number = f"{name} {number}", number + 1
        self._buffers[unique] = self._context.buffer(nbytes, name, uniform=uniform, read=read)
        return unique

    def make_all(self, sizes: Mapping[str, int]) -> None:
        """Add a buffer of each of these names and bytes."""
        for name, nbytes in sizes.items():
            self._buffers[name] = self._context.buffer(nbytes, name)

    def close(self) -> None:
        """Free every buffer."""
        for buffer in self._buffers.values():
            self._context.free(buffer)
        self._buffers.clear()
