"""GpuGraphs: compiles tensor graphs for one open GPU."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from volumetric.dtypes import Scheme
from volumetric.errors import UnsupportedError
from volumetric.kernels.gpu.dispatch import Caps
from volumetric.kernels.gpu.graph.launch import Launch, Request
from volumetric.kernels.gpu.graph.table import lower
from volumetric.runtime.gpu.commands import Executor
from volumetric.runtime.gpu.context import Call, GpuContext
from volumetric.runtime.gpu.graph.program import GpuProgram
from volumetric.runtime.gpu.graph.store import GpuStore
from volumetric.runtime.gpu.native import NativeExecutor
from volumetric.runtime.graph.device import Rounds
from volumetric.runtime.graph.ops import Graph
from volumetric.runtime.graph.unroll import unroll_scans


class GpuGraphs:
    """Tensor graphs on one GPU; all programs share pipelines, and the small buffers that launches take sizes from."""

    def __init__(self, context: GpuContext, executor: Executor | None = None) -> None:
        self.context = context
        self._executor = executor or NativeExecutor(context)
        self._dims: dict[bytes, Any] = {}

    @staticmethod
    def rounds(scheme: Scheme) -> Rounds | None:
        """How weights are rounded to `scheme` for a forward pass."""
        shape, attrs = (1, 4096), {"scheme": str(scheme)}
        try:
            lower(Request(op="fake_quant", inputs=(shape,), outputs=(shape,), attrs=attrs, caps=Caps()))
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
        return GpuProgram(self.context, unroll_scans(graph), store, self._executor, self.bind)

    def bind(self, launch: Launch, buffers: dict[str, Any]) -> Call:
        """Bind a launch, with its sizes."""
        return self.context.bind(launch.dispatch, {**buffers, "dims": self._dims_of(launch)}, launch.dims)

    def _dims_of(self, launch: Launch) -> Any:
        """Uniform buffer with a launch's sizes, one for all launches with the same."""
        words = b"".join(
            struct.pack("<f", word) if isinstance(word, float) else struct.pack("<I", word % (1 << 32))
            for word in launch.dims
        )
        if words not in self._dims:
            made = self._dims[words] = self.context.buffer(len(words), "sizes", uniform=True)
            self.context.write(made, np.frombuffer(words, np.uint32))
        return self._dims[words]
