"""Tensor graphs on the GPU: persistent buffers, and graphs bound once and replayed as one submission a run."""

from volumetric.runtime.gpu.graph.graphs import GpuGraphs
from volumetric.runtime.gpu.graph.program import GpuProgram
from volumetric.runtime.gpu.graph.store import GpuStore

__all__ = ["GpuGraphs", "GpuProgram", "GpuStore"]
