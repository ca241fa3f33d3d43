"""State shared by all step tables of a network: its graph, weights and states, and the rounding of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from volumetric.devices.cpu.cpu_state import plain_states
from volumetric.devices.cpu.kernels.amx.amx_scratch import PACKED_ROWS
from volumetric.devices.cpu.kernels.amx.amx_support import has_matrix_registers
from volumetric.devices.cpu.kernels.bytedot import multiplies_bytes
from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.panels import Rounding
from volumetric.devices.cpu.kernels.products import DIRECT_ROWS
from volumetric.devices.cpu.kernels.rounded_attention import unpacked_cache_bytes
from volumetric.devices.cpu.kv_cache import KvPair, KVStorage
from volumetric.devices.cpu.resident_weights import PanelMatrix, ResidentWeights, products_in
from volumetric.graph.ops import Node
from volumetric.network import OUTPUT
from volumetric.run.graph.partition import Partition

if TYPE_CHECKING:
    from volumetric.graph.ops import Graph


class RowSettings:
    """How a network runs on rows.

    Parameters
    ----------
    cut : the network
    weights : resident weights of the row operations
    compute : int8 and bfloat16 round the activations of products with integer weights to int8; bfloat16 also rounds
        those of products with bfloat16 weights; float32 rounds nothing
    storage : type of keys and values
    context : maximum tokens of a state
    threads : maximum threads of a step

    Attributes
    ----------
    pairs : keys and values that a state must hold
    opened_bytes : bytes per row of the bfloat16 copy of a cache; 0: attention does not multiply in bfloat16
    gathered : values whose requested rows are gathered before the tail
    tokens : tensor in the caller's array where a table writes the tokens that it selects
    late : outputs that can be computed for the requested rows alone
    written : the output that its step writes directly into the caller's array; None: none
    direct_rows : rows up to which packed integer panels are multiplied without unpacking
    """

    def __init__(
        self,
        partition: Partition,
        weights: ResidentWeights,
        *,
        compute: Rounding,
        storage: KVStorage,
        context: int,
        threads: int,
    ) -> None:
        self.cut = partition
        self.graph: Graph
        self.graph = graph = partition.graph
        self.weights = weights
        self.storage: KVStorage = storage
        self.context = context
        self.threads = threads
        self.tokens: int = len(graph.tensors)
        self._compute: Rounding = compute
        self.direct_rows = DIRECT_ROWS
        if compute != "float32" and weights.has_integers and has_matrix_registers():
            self.direct_rows: int = PACKED_ROWS
        attends = [node for node in partition.rows if node.op == "attend"]
        self.pairs: tuple[KvPair, ...] = tuple(dict.fromkeys(map(self.pair_of, attends)))
        opened = (unpacked_cache_bytes(node.attrs["kv_heads"], node.attrs["head_dim"]) for node in attends)
        self.opened_bytes: int = max(opened, default=0) if self._rounds_attention() else 0
        tail_values = {i for use in partition.uses if use.tail for i in use.writes}
        self.gathered: tuple[int, ...] = tuple(
            dict.fromkeys(i for use in partition.uses if use.tail for i in use.reads if i not in tail_values)
        )
        # A product stores its last columns one by one; other operations store whole vectors, beyond the row's end.
        out = partition.outputs[OUTPUT]
        self.late: set[int] = tail_values.intersection(graph.outputs)
        by_product = any(node.op == "linear" and node.outputs[0] == out for node in partition.rows)
        self.written: int | None = out if out in tail_values and by_product and not list(graph.readers(out)) else None

    def pair_of(self, node: Node) -> KvPair:
        """Return the pair that attention reads; nodes of one form without states share a pair that lives one step."""
        states = self.graph.states(node)
        sizes = {"kv_heads": node.attrs["kv_heads"], "head_dim": node.attrs["head_dim"]}
        return KvPair(**sizes, keys=states.get("k"), values=states.get("v"))

    def rounding_of(self, matrix: PanelMatrix) -> Rounding:
        """Return the rounding of activations in a product with `matrix`."""
        if matrix.form.is_integer and self._compute != "float32" and multiplies_bytes(matrix.form):
            return "int8"
        return "bfloat16" if matrix.form.name == self._compute == "bfloat16" else "float32"

    def product_of_many(self, matrix: PanelMatrix) -> str:
        """The operation that multiplies more rows than `direct_rows` with `matrix`."""
        by_matrix = self.rounding_of(matrix) == "int8" and has_matrix_registers()
        return "matrix_product" if by_matrix else "tile_product"

    def state_place(self, key: str) -> int:
        """Index of a state that no attention reads in a sequence's state table."""
        return len(self.pairs) + plain_states(self.cut.plan.states, self.pairs).index(key)

    def _rounds_attention(self) -> bool:
        """Whether attention multiplies in bfloat16: products round to int8 or bfloat16, and the CPU supports it."""
        rounds = any(self.rounding_of(matrix) != "float32" for matrix in self._matrices())
        return rounds and "avx512bf16" in target().features

    def _matrices(self) -> Iterator[PanelMatrix]:
        for node in products_in(self.graph, self.cut.rows):
            yield from self.weights.matrices(node)
