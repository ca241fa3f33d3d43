"""Recording of row operations: each node of a graph becomes dispatches, once for each way of running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu import experts, paged_attention, products, recurrent, rowwise, state_space
from volumetric.devices.gpu.command_list import RecordedDispatch
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.matmul import MatmulShape, MatvecTuning, SplitPartials, tune_batch
from volumetric.devices.gpu.kernels.matrix_tiles import MatrixCut
from volumetric.devices.gpu.paged_attention import AttentionBuffers
from volumetric.devices.gpu.tuning_cache import TuningCache
from volumetric.devices.gpu.value_buffers import ValueBuffers
from volumetric.devices.gpu.weight_buffers import WeightBuffers
from volumetric.graph.ops import Graph, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFrame:
    """One way of running nodes: the number of rows, and the buffers of values and control block.

    Attributes
    ----------
    nodes : nodes to record, in order
    rows : maximum rows of a call; 1 selects the kernels for a single row
    singles : maximum number of rows that are the only row of their sequence
    control : buffer with row counts and the place of each row
    values : tensor → buffer
    partials : output of an attention whose splits are joined by the reader → layout of the splits
    halved : outputs of norms whose halves are where the next product reads them
    """

    nodes: Sequence[Node]
    rows: int
    singles: int
    control: str
    values: Mapping[int, str]
    partials: dict[int, SplitPartials] = field(default_factory=dict)
    halved: set[int] = field(default_factory=set[int])


class RowRecorder:
    """Records the nodes of one graph as dispatches over named buffers.

    Attributes
    ----------
    graph : graph of row operations
    caps : device capabilities
    weights : resident weights, by key
    int8 : whether products of integer weights round their other side
    halves : whether products of many rows round both sides to float16, for matrix units
    attention : state shared by attention nodes
    most_rows : maximum rows of values
    product_rows : maximum rows of a product, in the body or in the tail
    stats : buffer for row statistics of norms
    """

    def __init__(
        self,
        graph: Graph,
        weights: WeightBuffers,
        scratch: ValueBuffers,
        attention: AttentionBuffers,
        *,
        compute: str,
        tunings: TuningCache,
    ) -> None:
        self.graph = graph
        self.caps: Caps = attention.caps
        self.weights = weights
        self.int8: bool = compute == "int8"
        self.halves: bool = products.multiplies_halves(compute, self.caps)
        self.attention = attention
        self.most_rows: int = scratch.rows
        self.product_rows: int = max(scratch.rows, scratch.tail_rows)
        self.stats: str = scratch.make(16 * self.product_rows, "row statistics")
        self._scratch = scratch
        self._tunings = tunings
        self._spares: dict[tuple[int, str], str] = {}

    def record(self, frame: RecordingFrame) -> list[RecordedDispatch]:
        """Record the nodes of a frame.

        Raises
        ------
        UnsupportedError : no kernel for one of them
        """
        entries: list[RecordedDispatch] = []
        for node in frame.nodes:
            write = WRITERS.get(node.op)
            if write is None:
                raise UnsupportedError(
                    f"the GPU has no kernel for {node.op!r} at {node.where}", hint="use device='cpu'"
                )
            entries += write(self, node, frame)
        return entries

    def width(self, tensor: int) -> int:
        """Elements in a row of a value."""
        return self.graph.tensors[tensor].width

    def spare(self, nbytes: int, label: str) -> str:
        """Return a buffer of this size for the inputs of the next dispatches, shared by all callers with this label."""
        if (nbytes, label) not in self._spares:
            self._spares[nbytes, label] = self._scratch.make(nbytes, label)
        return self._spares[nbytes, label]

    def cut_matvec(self, shape: MatmulShape, units: int, rows: int) -> MatvecTuning:
        """Tuning of a product of so many rows for `units` outputs."""
        return (
            self._tunings.tuning_of(shape, units, self.caps) if rows == 1 else tune_batch(shape, units, self.caps, rows)
        )

    def cut_matrix(self, shape: MatmulShape, units: int, rows: int) -> MatrixCut:
        """Tile and splits of a product of so many rows on matrix units."""
        return self._tunings.cut_of(shape, units, rows, self.caps)

    def products(self) -> list[tuple[MatmulShape, int]]:
        """Distinct matrix products of a row, with the outputs of a shard: the products whose tunings are searched."""
        distinct: dict[tuple[MatmulShape, int], None] = {}
        for node in self.graph.nodes:
            if node.op in ("linear", "recurrence"):
                product = products.product_of if node.op == "linear" else recurrent.product_of
                shape, matrix = product(self, node)
                distinct |= {(replace(shape, format=shard.format), shard.units): None for shard in matrix.shards}
        return list(distinct)


WRITERS: Mapping[str, Callable[[RowRecorder, Node, RecordingFrame], list[RecordedDispatch]]] = MappingProxyType(
    {
        "linear": products.linear,
        "attend": paged_attention.attend,
        "recurrence": recurrent.recurrence,
        "experts": experts.experts,
        **rowwise.WRITERS,
        **state_space.WRITERS,
    }
)
"""Operation → function that records it."""
