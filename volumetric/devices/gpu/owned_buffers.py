"""Named buffers of one owner, which frees them together, except buffers shared with other owners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from volumetric.devices.gpu.gpu_context import BufferSlice, GpuContext


class OwnedBuffers(Mapping[str, Any]):
    """Name → buffer.

    Parameters
    ----------
    context : the open GPU
    """

    def __init__(self, context: GpuContext) -> None:
        self._context = context
        self._buffers: dict[str, Any] = {}
        self._owners: dict[str, list[int]] = {}  # reference count of a buffer, in a list shared by its owners
        self._borrowed: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        return self._buffers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, without borrowed ones."""
        return sum(buffer.size for name, buffer in self._buffers.items() if name not in self._borrowed)

    def is_shared(self, name: str) -> bool:
        """Whether other owners share a buffer."""
        return self._owners.get(name, [1]) != [1]

    def make(self, name: str, nbytes: int, *, uniform: bool = False, read: bool = False) -> str:
        """Create a buffer and return its name, with a number appended if the name is taken.

        Raises
        ------
        DeviceError : beyond the device's limit or its memory
        """
        unique = self._unique(name)
        self._buffers[unique] = self._context.buffer(nbytes, name, uniform=uniform, read=read)
        return unique

    def borrow(self, other: OwnedBuffers, name: str, *, offset: int = 0, size: int | None = None) -> str:
        """Add a buffer of another owner, or a part of it, and return its name here; the last owner frees it."""
        whole, unique = other[name], self._unique(name)
        inner = whole.buffer if isinstance(whole, BufferSlice) else whole
        begin = offset + (whole.offset if isinstance(whole, BufferSlice) else 0)
        part = BufferSlice(inner, begin, whole.size if size is None else size)
        self._buffers[unique] = whole if size is None else part
        self._owners[unique] = owners = other._owners.setdefault(name, [1])
        owners[0] += 1
        self._borrowed.add(unique)
        return unique

    def _unique(self, name: str) -> str:
        unique, number = name, 2
        while unique in self._buffers:
            unique, number = f"{name} {number}", number + 1
        return unique

    def make_all(self, sizes: Mapping[str, int]) -> None:
        """Create a buffer for each of these names and sizes."""
        for name, nbytes in sizes.items():
            self._buffers[name] = self._context.buffer(nbytes, name)

    def close(self) -> None:
        """Free every buffer that no other owner shares."""
        for name, buffer in self._buffers.items():
            owners = self._owners.get(name, [1])
            owners[0] -= 1
            if not owners[0]:
                self._context.free(buffer.buffer if isinstance(buffer, BufferSlice) else buffer)
        for table in (self._buffers, self._owners):
            table.clear()
        self._borrowed.clear()
