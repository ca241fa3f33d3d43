"""GPU device: WGSL compute shaders through wgpu. Only this package imports wgpu, and only on use."""

from volumetric.devices.gpu.device import GpuDevice
from volumetric.devices.gpu.listing import list_gpus

__all__ = ["GpuDevice", "list_gpus"]
