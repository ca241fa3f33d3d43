"""GPU device: WGSL compute shaders through wgpu. This package is the only one that imports wgpu, and only when used."""

from volumetric.devices.gpu.device import GpuDevice
from volumetric.devices.gpu.listing import list_gpus

__all__ = ["GpuDevice", "list_gpus"]
