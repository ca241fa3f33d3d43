"""GpuContext: what recordings need of a GPU: buffers and bindings. An open GPU has them, and a recording, too.

`volumetric.devices.gpu.open_gpu` runs what is bound; `volumetric.devices.gpu.recording_context` writes it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, Caps, Dispatch, WorkgroupGrid

if TYPE_CHECKING:
    from volumetric.devices.gpu.command_list import RecordedDispatch
    from volumetric.devices.gpu.shaders import LinkedShader
    from volumetric.devices.gpu.tuning_cache import TuningCache


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A compiled kernel and its bindings."""

    linked: LinkedShader
    layout: Any
    pipeline: Any


@dataclass(frozen=True, slots=True)
class BoundDispatch:
    """One bound dispatch, ready to replay without further look-ups. `label` identifies its kind in profiles."""

    name: str
    label: str
    pipeline: Any
    group: Any
    grid: WorkgroupGrid
    immediates: bytes


@dataclass(frozen=True, slots=True)
class BufferSlice:
    """Part of a buffer to bind instead of the whole; `offset` is a multiple of the GPU's alignment."""

    buffer: Any
    offset: int
    size: int

    def overlaps(self, other: BufferSlice) -> bool:
        """Whether the two have bytes in common."""
        apart = self.offset + self.size <= other.offset or other.offset + other.size <= self.offset
        return self.buffer is other.buffer and not apart


class GpuContext(Protocol):
    """Resources of one GPU, open or recorded for another machine.

    Attributes
    ----------
    caps : capabilities that kernels are chosen by
    features : names of WebGPU's features that are in use
    software : whether kernels run on the CPU
    tunings : tunings of products for this GPU
    allocated : bytes of all buffers
    """

    caps: Caps
    features: frozenset[str]
    software: bool
    tunings: TuningCache
    allocated: int

    @property
    def alignment(self) -> int:
        """Required alignment of the offset of a storage binding, in bytes."""
        ...

    def buffer(self, nbytes: int, label: str, *, uniform: bool = False, read: bool = False) -> Any:
        """Create a zeroed buffer for storage (and uniforms), or with `read` one that the host can map.

        Raises
        ------
        DeviceError : the buffer exceeds the device's limit or its memory
        """
        ...

    def free(self, buffer: Any) -> None:
        """Release a buffer's memory now."""
        ...

    def write(self, buffer: Any, data: NDArray[Any], offset: int = 0) -> None:
        """Copy an array into a buffer."""
        ...

    def upload(self, data: NDArray[Any], label: str) -> Any:
        """Return a new buffer with the contents `data`."""
        ...

    def read(self, buffer: Any, nbytes: int, offset: int = 0) -> NDArray[np.uint8]:
        """Wait for the GPU and return bytes of a buffer."""
        ...

    def copy_whole(self, pairs: list[tuple[Any, Any]]) -> None:
        """Copy each first buffer over the second, which is as large or larger."""
        ...

    def new_executor(self) -> Any:
        """Return an executor with prepared calls."""
        ...

    def bind(self, dispatch: Dispatch, buffers: Mapping[str, Any], dims: Sequence[int | float] = ()) -> BoundDispatch:
        """Bind a dispatch to `buffers`, by the shader's names; `dims` are the contents of its uniform ``dims``.

        Raises
        ------
        DeviceError : the shader does not declare a name, or a buffer would be bound to two writable bindings
        """
        ...

    def bind_all(self, entries: Iterable[RecordedDispatch], buffers: Mapping[str, Any]) -> list[BoundDispatch]:
        """Bind a recording to buffers by their names in it; raises as `bind`."""
        ...

    def run(self, calls: list[BoundDispatch], rows: CallRows = ONE_ROW) -> None:
        """Submit `calls` in one compute pass."""
        ...
