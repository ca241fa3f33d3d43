"""The CPU device: compiled kernels over packed weights."""

from __future__ import annotations

import platform
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from volumetric.base.errors import DeviceError, UnsupportedError
from volumetric.devices.cpu.cpu_count import default_threads
from volumetric.devices.cpu.executable import CpuExecutable
from volumetric.devices.cpu.kernels.amx.amx_support import has_matrix_registers
from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.panels import FORMATS, Rounding
from volumetric.devices.cpu.kv_cache import KVStorage
from volumetric.devices.cpu.resident_weights import ResidentWeights
from volumetric.devices.cpu.row_programs import RowPrograms
from volumetric.devices.cpu.row_settings import RowSettings
from volumetric.devices.cpu.subgraph_steps import SubgraphPrograms
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.network import Params
from volumetric.run.device import DeviceInfo, Executable, RunOptions
from volumetric.run.graph.network_graph import GROUPED, NATIVE
from volumetric.run.graph.partition import Partition
from volumetric.run.plan import Plan
from volumetric.run.regroup import regroup_params

if TYPE_CHECKING:
    from volumetric.devices.cpu.graph.graphs import CpuGraphs
    from volumetric.network import Network
    from volumetric.run.streams import RowStream, S, Streamable


class CpuDevice:
    """Runs plans and tensor graphs on the processor.

    Parameters
    ----------
    threads : threads to use; None: the physical cores that the process may use

    Attributes
    ----------
    native_schemes : schemes that are executed as stored; all others are converted to float32
    native_operations : operations that run on rows
    """

    native_schemes: tuple[str, ...] = tuple(FORMATS)
    native_operations: frozenset[str] = NATIVE | GROUPED

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise DeviceError(f"threads must be at least 1, got {threads}")
        self.threads: int = threads or default_threads()

    @property
    def info(self) -> DeviceInfo:
        """Name of the processor, threads and instruction set."""
        threads = f"{self.threads} thread" + ("s" if self.threads > 1 else "")
        machine, matrix = target(), has_matrix_registers()
        return DeviceInfo(
            name="cpu",
            kind="cpu",
            description=f"{_processor()}, {threads}, {machine.description}{', AMX' if matrix else ''}",
            details={"threads": self.threads, "dot": machine.dot, "amx": matrix, "native": self.native_schemes},
        )

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> Executable:
        """Bind `plan` (as `lower` wrote it) to resident copies of `params`.

        Row operations read packed weights; other subgraphs have float32 copies.
        """
        return self._compile(plan, params, options or RunOptions(), None)

    def _compile(self, plan: Plan, sources: Params, options: RunOptions, like: ResidentWeights | None) -> CpuExecutable:
        if options.compute == "float16":
            raise UnsupportedError("the CPU has no products in float16", hint="use compute='auto', or device='gpu'")
        threads = options.threads or self.threads
        partition = Partition(plan, self.native_operations)
        params = regroup_params(sources, self.native_schemes)
        weights = ResidentWeights(partition.graph, partition.rows, params, threads, sources=sources, like=like)
        executor = StepTableExecutor(threads)
        between = SubgraphPrograms(partition, params, executor)
        compute: Rounding = "int8" if options.compute == "auto" else options.compute
        storage = self._storage(options, weights)
        settings = RowSettings(
            partition, weights, compute=compute, storage=storage, context=options.context, threads=threads
        )
        beside = partial(self._compile, options=options, like=weights)
        return CpuExecutable(RowPrograms(settings, between), options, executor, beside)

    def stream(self, machine: Network | Streamable[S], params: Params, *, batch: int = 1) -> RowStream | S:
        """Return `batch` streams: see `volumetric.run.streams`."""
        from volumetric.run.streams import open_stream

        return open_stream(self, machine, params, batch=batch)

    def graphs(self, *, batch_invariant: bool = False) -> CpuGraphs:
        """Return the device for tensor graphs; `batch_invariant`: rows are batch-invariant, see `CpuGraphs`."""
        from volumetric.devices.cpu.graph.graphs import CpuGraphs

        return CpuGraphs(self.threads, batch_invariant=batch_invariant)

    @staticmethod
    def _storage(options: RunOptions, weights: ResidentWeights) -> KVStorage:
        """Keys and values in float16 if activations are rounded to 8 bits anyway, else in float32."""
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
