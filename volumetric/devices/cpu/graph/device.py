"""Tensor graphs on the CPU device."""

from __future__ import annotations

from volumetric.devices.cpu.governor import Walker
from volumetric.devices.cpu.graph import (
    cells,
    crossing,
    depthwise,
    distances,
    edges,
    elements,
    images,
    nodes,
    products,
    recurrent,
    rowwise,
    scans,
    training,
)
from volumetric.devices.cpu.graph.in_place import write_in_place
from volumetric.devices.cpu.graph.joining import join_products
from volumetric.devices.cpu.graph.nodes import fuse_nodes
from volumetric.devices.cpu.graph.program import CpuProgram
from volumetric.devices.cpu.graph.samples import by_samples
from volumetric.devices.cpu.graph.skipping import skip_together
from volumetric.devices.cpu.graph.steps import rule
from volumetric.devices.cpu.graph.store import CpuStore
from volumetric.devices.cpu.graph.windows import in_pieces
from volumetric.dtypes import Scheme
from volumetric.graph.device import Rounds
from volumetric.graph.ops import Graph
from volumetric.graph.passes import fuse_activations, fuse_trials, join_pads, spread_late, whole_of_parts
from volumetric.graph.unroll import unroll_scans, write_out

# Importing them fills `rule`.
_FAMILIES = (
    cells,
    crossing,
    depthwise,
    distances,
    edges,
    elements,
    images,
    nodes,
    products,
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

    def __init__(
        self, threads: int, *, always: bool = False, walker: Walker | None = None, alike: bool = False
    ) -> None:
        self.threads = threads
        self._alike = alike
        self._walker = walker or Walker(threads, always=always)

    @property
    def operations(self) -> frozenset[str]:
        """Operations that have kernels."""
        return frozenset(rule) | {"reshape", "scan"}

    @staticmethod
    def rounds(scheme: Scheme) -> Rounds | None:
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
        return CpuProgram(_rewritten(graph), store, self._walker, alike=self._alike)


def _written_out(graph: Graph) -> Graph:
    """Return the graph with operations without a kernel expanded into others, if they define an expansion."""
    return write_out(graph, lambda node: node.op in rule)


_PASSES = (
    unroll_scans,
    _written_out,
    fuse_activations,
    fuse_trials,
    join_pads,
    whole_of_parts,
    spread_late,
    fuse_nodes,
    by_samples,
    in_pieces,
    join_products,
    write_in_place,
    skip_together,
)


def _rewritten(graph: Graph) -> Graph:
    """Return the graph rewritten for efficient kernels."""
    for rewritten in _PASSES:
        graph = rewritten(graph)
    return graph
