"""Tensor graphs on the CPU device."""

from __future__ import annotations

from volumetric.devices.cpu.graph import (
    cells,
    cross_attention,
    depthwise,
    distance_attention,
    edge_attention,
    elements,
    fused_cells,
    gemm_steps,
    image_windows,
    recurrent,
    rowwise,
    scans,
    training,
)
from volumetric.devices.cpu.graph.convolution_by_samples import split_by_samples
from volumetric.devices.cpu.graph.convolution_by_windows import split_by_windows
from volumetric.devices.cpu.graph.cpu_program import CpuProgram
from volumetric.devices.cpu.graph.fused_cells import fuse_cells
from volumetric.devices.cpu.graph.gemm_sums import join_products
from volumetric.devices.cpu.graph.graph_rules import rule
from volumetric.devices.cpu.graph.in_place import write_in_place
from volumetric.devices.cpu.graph.merged_predicates import merge_predicates
from volumetric.devices.cpu.graph.store import CpuStore
from volumetric.devices.cpu.thread_control import StepTableExecutor
from volumetric.dtypes import Scheme
from volumetric.graph.cleanup_passes import (
    broadcast_in_binary,
    fuse_activations,
    fuse_trials,
    join_pads,
    whole_of_parts,
)
from volumetric.graph.graph_device import Rounds
from volumetric.graph.ops import Graph, ProductType
from volumetric.graph.unroll_scans import unroll_scans, write_out

# Importing them fills `rule`.
_FAMILIES = (
    cells,
    cross_attention,
    depthwise,
    distance_attention,
    edge_attention,
    elements,
    image_windows,
    fused_cells,
    gemm_steps,
    recurrent,
    rowwise,
    scans,
    training,
)


class CpuGraphs:
    """Compiles graphs; results do not depend on the number of threads.

    Parameters
    ----------
    threads : maximum threads of a run
    always : use them all, even for work that one thread does faster; for tests
    walker : executes its programs, and those of others that share its threads; None: a separate one
    alike : products sum in one order for any number of rows, so rows are batch-invariant; with many rows this takes up
        to twice as long
    """

    parted = False
    unrolled = True
    products: tuple[ProductType, ...] = ("float32",)

    def __init__(
        self,
        threads: int,
        *,
        always: bool = False,
        executor: StepTableExecutor | None = None,
        batch_invariant: bool = False,
    ) -> None:
        self.threads = threads
        self._alike = batch_invariant
        self._executor = executor or StepTableExecutor(threads, always=always)

    @property
    def operations(self) -> frozenset[str]:
        """Operations that have kernels."""
        return frozenset(rule) | {"reshape", "scan"}

    @staticmethod
    def rounding_of(scheme: Scheme) -> Rounds | None:
        """Return how weights are rounded to `scheme` in a forward pass."""
        return "native" if str(scheme) == "float32" or training.rounding_rule(scheme) else "codec"

    def store(self) -> CpuStore:
        """Return an empty store."""
        return CpuStore()

    def compile(self, graph: Graph, store: CpuStore) -> CpuProgram:
        """Bind `graph` to the buffers of `store`.

        Raises
        ------
        UnsupportedError
            A node has no kernel.
        SpecError
            The store has no buffer for a key of the graph.
        ShapeError
            A buffer has another shape or type than its tensor.
        """
        return CpuProgram(_rewrite_graph(graph), store, self._executor, batch_invariant=self._alike)


def _expand_operations(graph: Graph) -> Graph:
    """Return the graph with operations without a kernel expanded into others, if they define an expansion."""
    return write_out(graph, lambda node: node.op in rule)


_PASSES = (
    unroll_scans,
    _expand_operations,
    fuse_activations,
    fuse_trials,
    join_pads,
    whole_of_parts,
    broadcast_in_binary,
    fuse_cells,
    split_by_samples,
    split_by_windows,
    join_products,
    write_in_place,
    merge_predicates,
)


def _rewrite_graph(graph: Graph) -> Graph:
    """Return the graph rewritten for efficient kernels."""
    for rewritten in _PASSES:
        graph = rewritten(graph)
    return graph
