"""GpuGraphs: compiles tensor graphs for one open GPU."""

from __future__ import annotations

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.gpu_commands import Executor
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.graph.gpu_program import GpuProgram
from volumetric.devices.gpu.graph.store import GpuStore
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest
from volumetric.devices.gpu.kernels.graph.kernel_table import lower
from volumetric.dtypes import Scheme
from volumetric.graph.graph_device import Rounds
from volumetric.graph.ops import Graph, ProductType


class GpuGraphs:
    """Tensor graphs on one GPU; all programs share pipelines."""

    parted = unrolled = True
    products: tuple[ProductType, ...] = ("float32", "float16")

    def __init__(self, context: GpuContext, executor: Executor | None = None) -> None:
        self.context = context
        self._executor = executor or context.new_executor()

    @staticmethod
    def rounding_of(scheme: Scheme) -> Rounds | None:
        """Return how weights are rounded to `scheme` in a forward pass."""
        shape, attrs = (1, 4096), {"scheme": str(scheme)}
        try:
            lower(LoweringRequest(op="fake_quant", inputs=(shape,), outputs=(shape,), attrs=attrs, caps=Caps()))
        except UnsupportedError:
            return None
        return "native"

    def store(self) -> GpuStore:
        """Return an empty store."""
        return GpuStore(self.context)

    def compile(self, graph: Graph, store: GpuStore) -> GpuProgram:
        """Bind `graph` to `store`.

        Raises
        ------
        UnsupportedError : no kernel for a node
        SpecError : the store has no buffer for a key of the graph
        ShapeError : a buffer has another shape or type than the graph's tensor
        DeviceError : a tensor exceeds a binding of the GPU, or memory is short
        """
        return GpuProgram(self.context, graph, store, self._executor)
