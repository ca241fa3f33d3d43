"""Buffers for the values of a graph on rows: a bounded number of rows, shared between values not live at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.buffer_names import BufferNames, TensorBuffers
from volumetric.devices.gpu.call_schedule import LISTED_ROWS
from volumetric.devices.gpu.gpu_context import GpuContext
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.owned_buffers import OwnedBuffers
from volumetric.graph.ops import Graph, Node, Tensor

CHUNK_ROWS = 512
"""Maximum rows that run at a time, where sequences may be split."""
_TOGETHER_BYTES = 256 << 20
"""Memory of the values of a call of several whole sequences, about."""
_WIDEST = 4
"""Values of a row, as wide as the widest, that such a call has in memory."""
_TAIL_BYTES = 64 << 20


class RowPort(NamedTuple):
    """Where the rows of an input or output of a graph are; `stride`: bytes from one row to the next."""

    buffer: Any
    shape: Shape
    dtype: str
    stride: int


def row_words(tensor: Tensor) -> int:
    """32-bit words of a row: ids are side by side, features take whole vectors."""
    return tensor.width if tensor.dtype == "int32" else 4 * ceil_div(tensor.width, 4)


def row_bytes(tensor: Tensor) -> int:
    """Bytes of a row."""
    return 4 * row_words(tensor)


def rows_within(graph: Graph, nodes: Iterable[Node], most: int, limit: int) -> int:
    """Number of rows, at most `most`, with which every value that `nodes` write fits `limit` bytes.

    Raises
    ------
    DeviceError : not even one row fits
    """
    nodes = tuple(nodes)
    sizes = [(row_bytes(graph.tensors[i]), node.where) for node in nodes for i in node.outputs[:1]]
    sizes += [(_pairs_bytes(graph, node), node.where) for node in nodes if node.op == "experts"]
    widest, where = max(sizes, default=(4, ""))
    if widest > limit:
        at = f" at {where}" if where else ""
        raise DeviceError(
            f"a row of {widest // 4} values{at} needs {widest} bytes; this GPU binds at most {limit}",
            hint="use device='cpu'",
        )
    return min(most, limit // widest)


def rows_together(graph: Graph, least: int, limit: int) -> int:
    """Number of rows of calls of several sequences that are not split, at least `least`, those of one sequence.

    A call costs as much as the launches of the network, so that texts of a few rows gain most from sharing it.
    """
    widest = max((row_bytes(graph.tensors[i]) for node in graph.nodes for i in node.outputs[:1]), default=4)
    fitting = min(_TOGETHER_BYTES // _WIDEST, limit) // widest
    return max(least, min(LISTED_ROWS, fitting))


class ValueBuffers:
    """Value buffers of one graph.

    Parameters
    ----------
    context : the open GPU
    graph : its nodes run in order: row operations, and segments between them
    most : rows to allocate for, if the GPU has room
    least : minimum rows; attention without a cache needs all rows of a call
    tail : maximum rows of the tail

    Attributes
    ----------
    rows : rows that the body of the graph processes at once; longer calls run in chunks
    tail_rows : rows that the tail processes at once
    values : tensor → name of its buffer
    gathered : tensor that the tail reads from the body → name of the buffer with the tail's rows of it
    buffers : name → buffer

    Raises
    ------
    DeviceError : the GPU has no room for a row, or for the minimum of rows
    """

    def __init__(self, context: GpuContext, graph: Graph, *, most: int, least: int, tail: int | None = None) -> None:
        self._context = context
        limit = context.caps.max_binding
        body = [node for node in graph.nodes if not node.tail]
        tail_nodes = [node for node in graph.nodes if node.tail]
        self.buffers: OwnedBuffers = OwnedBuffers(context)
        self.rows: int = rows_within(graph, body, most, limit)
        if self.rows < least:
            raise DeviceError(
                f"attention without a cache needs all {least} rows at once; this GPU binds {self.rows}",
                hint=f"use a context of at most {self.rows}",
            )
        self.tail_rows: int = rows_within(graph, tail_nodes, min(self.rows, tail or self.rows), min(limit, _TAIL_BYTES))
        made_in_tail = {i for node in tail_nodes for i in node.outputs}
        crossing = {i for node in tail_nodes for i in graph_values(graph, node)} - made_in_tail
        slots = BufferNames("value", limit)
        inputs = [i for i in graph.inputs if i not in graph.derived]
        self.values: dict[int, str] = {
            i: slots.new(self.rows * row_bytes(graph.tensors[i]), graph.tensors[i].name) for i in inputs
        }
        self._assign_buffers(graph, body, slots, self.rows, sorted(crossing))
        self._assign_buffers(graph, tail_nodes, slots, self.tail_rows, ())
        self.buffers.make_all(slots.sizes)
        self.gathered: dict[int, str] = {
            i: self.make(self.tail_rows * row_bytes(graph.tensors[i]), "tail rows") for i in crossing
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self.buffers.nbytes

    def make(self, nbytes: int, label: str, *, uniform: bool = False) -> str:
        """Create another buffer with the same lifetime, and return its name."""
        return self.buffers.make(label, nbytes, uniform=uniform)

    def add_array(self, values: NDArray[Any], label: str) -> str:
        """Create another buffer with these contents, and return its name."""
        name = self.make(values.nbytes, label)
        self._context.write(self.buffers[name], values)
        return name

    def close(self) -> None:
        """Free every buffer."""
        self.buffers.close()
        self.values.clear()
        self.gathered.clear()

    def _assign_buffers(
        self, graph: Graph, nodes: list[Node], slots: BufferNames, rows: int, lasting: Sequence[int]
    ) -> None:
        """Assign a buffer to each value that `nodes` write."""
        part = replace(graph, nodes=tuple(nodes), outputs=(*graph.outputs, *lasting))
        names = TensorBuffers(part, self.values, slots, lambda tensor: rows * row_bytes(tensor))
        for at in range(len(nodes)):
            names.begin(at)
            names.end(at)
        self.values |= names.names


def _pairs_bytes(graph: Graph, node: Node) -> int:
    """Bytes of the experts' results of a row, for the wider of the two products."""
    wide = max(node.attrs["first"]["parts"][0], graph.tensors[node.outputs[0]].width)
    return node.attrs["top_k"] * 16 * ceil_div(wide, 4)


def graph_values(graph: Graph, node: Node) -> list[int]:
    """Inputs of a node with a row for each row of the call, including those of predicates."""
    return list(dict.fromkeys([*graph.values(node.inputs), *([] if node.predicate is None else [node.predicate[0]])]))
