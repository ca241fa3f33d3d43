"""The CPU device. Importing it loads Numba."""

from volumetric.runtime.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
