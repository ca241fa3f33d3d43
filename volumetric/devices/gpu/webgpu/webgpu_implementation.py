"""What the engine needs of a WebGPU implementation, and the names of the two that it knows.

The Python interface of both is that of wgpu-py. They differ in the names of features, in the functions beside the
standard, in the dialect of WGSL, and in how errors and the end of a submission are told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.shaders.dialects import Dialect

NAMES: Final = ("wgpu", "dawn")
"""The implementations; the first is always installed."""
VARIABLE: Final = "VOLUMETRIC_WEBGPU"
"""The environment variable that decides by hand."""


class WebGpu(Protocol):
    """One implementation.

    Attributes
    ----------
    name : one of `NAMES`
    dialect : of WGSL that its compiler reads
    """

    name: str
    dialect: Dialect

    @property
    def version(self) -> str:
        """Versions of the package and of the library in it."""
        ...

    @property
    def flags(self) -> Any:
        """Module with `BufferUsage`, `MapMode`, `GPUError` and `GPUOutOfMemoryError`."""
        ...

    @property
    def remarks(self) -> str:
        """What the library wrote while it listed adapters: why it leaves some out."""
        ...

    def adapters(self, backend: str) -> list[Any]:
        """Adapters of one backend (``"Vulkan"`` or ``"Metal"``), in the order of the driver.

        Raises
        ------
        DeviceError : the package or its library cannot be loaded, or the driver fails
        """
        ...

    def features(self, adapter: Any) -> frozenset[str]:
        """Features of an adapter, by the names that the standard has (``"subgroups"``, ``"shader-f16"``).

        ``"immediates"`` stands for immediate data of 16 bytes or more, ``"matrix-units"`` for matrices of subgroups.
        """
        ...

    def has_matrix_units(self, adapter: Any) -> bool:
        """Whether a device can multiply matrices of 16 x 16 float16 with float32 sums in subgroups."""
        ...

    def subgroup_sizes(self, adapter: Any) -> tuple[int, int]:
        """Smallest and largest subgroup; (4, 128), the bounds of the standard, where the driver states none."""
        ...

    def open(self, adapter: Any, features: frozenset[str]) -> Any:
        """Return a device with these features, and all limits of the adapter."""
        ...

    def create_module(self, device: Any, name: str, text: str) -> Any:
        """Compile WGSL without the checks of indices and loops made for untrusted code: kernels clamp indices."""
        ...

    def create_pipelines(self, device: Any, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return compute pipelines, compiled at the same time; `requests` are arguments of the call for one.

        Raises
        ------
        RuntimeError, or an error of the package : one cannot be compiled
        """
        ...

    def cause(self, message: str) -> str:
        """Return the line of an error's report that says what is wrong."""
        ...

    def timestamp_seconds(self, queue: Any) -> float:
        """Seconds of one tick of a timestamp query."""
        ...

    def executor(self, context: Any) -> Any:
        """Return an `Executor` with prepared calls for an `OpenGpu`."""
        ...


def webgpu(name: str) -> WebGpu:
    """Return an implementation; nothing is loaded before it is used."""
    if name == "dawn":
        from volumetric.devices.gpu.webgpu.dawn import DAWN

        return DAWN
    from volumetric.devices.gpu.webgpu.wgpu_native import WGPU

    return WGPU


def implementation_by_hand() -> str | None:
    """Return what `VARIABLE` names; None if it is not set.

    Raises
    ------
    DeviceError : it names none of `NAMES`
    """
    value = os.environ.get(VARIABLE, "").strip().lower()
    if not value or value in NAMES:
        return value or None
    raise DeviceError(f"{VARIABLE}: there is no WebGPU implementation {value!r}", hint=f"known: {', '.join(NAMES)}")
