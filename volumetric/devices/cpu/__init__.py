"""The CPU device. Importing it loads Numba."""

from volumetric.devices.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
