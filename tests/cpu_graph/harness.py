"""What the tests of CPU graphs share: devices of one and of three threads, and what counts as agreement."""

from __future__ import annotations

from functools import cache

from volumetric.devices.cpu import CpuDevice
from volumetric.devices.cpu.graph.graphs import CpuGraphs


@cache
def graphs(threads: int = 1) -> CpuGraphs:
    """The device; with several threads it uses them all, however small the work."""
    return CpuGraphs(threads, always=threads > 1) if threads > 1 else CpuDevice(threads).graphs()
