"""The CPU device: compiled kernels over packed weights."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from volumetric.errors import DeviceError
from volumetric.kernels.cpu.panels import FORMATS, Rounding
from volumetric.kernels.cpu.target import target
from volumetric.network import Params
from volumetric.runtime.cpu.cores import default_threads
from volumetric.runtime.cpu.executable import CpuExecutable
from volumetric.runtime.cpu.program import Program
from volumetric.runtime.cpu.resident import ResidentWeights
from volumetric.runtime.cpu.state import KVStorage
from volumetric.runtime.device import DeviceInfo, Executable, RunOptions
from volumetric.runtime.fuse import fuse_if_row_wise
from volumetric.runtime.graph.network import NATIVE
from volumetric.runtime.narrowing import narrowed_params
from volumetric.runtime.plan import Plan

if TYPE_CHECKING:
    from volumetric.runtime.cpu.graph.device import CpuGraphs


class CpuDevice:
    """Runs plans and tensor graphs on the processor.

    Parameters
    ----------
    threads : threads to use; None means the physical cores that the process may use

    Attributes
    ----------
    native_schemes : schemes that are executed as stored; all others become float32 when made resident
    native_operations : operations that run on the rows of a call
    """

    native_schemes = tuple(FORMATS)
    native_operations = NATIVE

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise DeviceError(f"threads must be at least 1, got {threads}")
        self.threads = threads or default_threads()

    @property
    def info(self) -> DeviceInfo:
        """Name of the processor, threads and instruction set."""
        threads = f"{self.threads} thread" + ("s" if self.threads > 1 else "")
        machine = target()
        return DeviceInfo(
            name="cpu",
            kind="cpu",
            description=f"{_processor()}, {threads}, {machine.description}",
            details={"threads": self.threads, "dot": machine.dot, "native": self.native_schemes},
        )

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> Executable:
        """Bind `plan` (as `lower` wrote it) to resident copies of `params`.

        A plan that consists of row-wise operations runs fused; any other as tensor graphs.

        Raises
        ------
        UnsupportedError : the plan runs as graphs, which are float32, and the options ask for something else
        """
        options = options or RunOptions()
        fused = fuse_if_row_wise(plan, self.native_operations)
        if fused is not None:
            return self._bound(fused, params, options)
        from volumetric.runtime.graph.executable import GraphExecutable

        device = CpuDevice(options.threads or self.threads)
        return GraphExecutable(plan, params, options, device.graphs())

    def _bound(self, fused: Plan, params: Params, options: RunOptions) -> CpuExecutable:
        """Make the weights of a fused plan resident and write its step tables."""
        threads = options.threads or self.threads
        weights = ResidentWeights(fused, narrowed_params(params, self.native_schemes), threads)
        compute: Rounding = "int8" if options.compute == "auto" else options.compute
        storage = self._storage(options, weights)
        program = Program(fused, weights, compute=compute, storage=storage, context=options.context)
        return CpuExecutable(program, options, threads)

    def graphs(self) -> CpuGraphs:
        """Return the device for tensor graphs."""
        from volumetric.runtime.cpu.graph.device import CpuGraphs

        return CpuGraphs(self.threads)

    @staticmethod
    def _storage(options: RunOptions, weights: ResidentWeights) -> KVStorage:
        """Keys and values in float16 where activations are rounded to 8 bits anyway, else in float32."""
        if options.kv_dtype != "auto":
            return options.kv_dtype
        return "float16" if weights.has_integers and options.compute != "float32" else "float32"


@cache
def _processor() -> str:
    """Name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
