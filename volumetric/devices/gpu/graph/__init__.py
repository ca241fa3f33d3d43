"""Tensor graphs on the GPU: persistent buffers, and graphs bound once and replayed as one submission per run."""

from volumetric.devices.gpu.graph.gpu_program import GpuProgram
from volumetric.devices.gpu.graph.graphs import GpuGraphs
from volumetric.devices.gpu.graph.store import GpuStore

__all__ = ["GpuGraphs", "GpuProgram", "GpuStore"]
