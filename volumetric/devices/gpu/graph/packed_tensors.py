"""Small persistent tensors side by side in one buffer: operations on many of them become one launch.

Graphs name them separately. Bound to a store that packs some of them, a graph reads them as parts of the packed buffer,
and writes the whole buffer once, after everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from volumetric.base._typing import Shape
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.graph.pruning import prune
from volumetric.graph.rewriter import GraphRewriter


@dataclass(frozen=True, slots=True)
class PackedTensors:
    """Float32 tensors stored one after the other.

    Attributes
    ----------
    key : of the buffer
    size : total number of elements
    starts : key → index of its first element
    """

    key: str
    size: int
    starts: Mapping[str, int]


def read_packed(graph: Graph, packed: PackedTensors) -> Graph:
    """Return a graph whose tensors with keys in `packed` are parts of it; only `assign` may write them."""
    keys = [tensor.key for tensor in graph.tensors]
    own = {i for i, key in enumerate(keys) if key in packed.starts}
    if not own:
        return graph
    writers = {node.outputs[0]: node for node in graph.nodes if node.outputs and node.outputs[0] in own}
    work = GraphRewriter(graph)
    whole = len(work.tensors)
    work.tensors.append(Tensor(name=packed.key, shape=(packed.size,), key=packed.key))

    def part(key: str, size: int) -> int:
        start = packed.starts[key]
        return work.emit("slice", (whole,), (size,), starts=(start,), stops=(start + size,))

    for i in sorted(own):
        tensor = graph.tensors[i]
        work.tensors[i] = replace(tensor, key=None)
        if i not in writers:
            _view(work, (i,), part(str(tensor.key), tensor.size), tensor.shape)
    written: dict[str, int] = {}
    for node in graph.nodes:
        work.where = node.where
        if node.outputs and node.outputs[0] in own:
            [i] = node.outputs
            _view(work, (i,), node.inputs[0], work.shape(i))
            written[str(keys[i])] = node.inputs[0]
        else:
            work.nodes.append(node)
    if written:
        ends = [*sorted(packed.starts.values())[1:], packed.size]
        parts: list[int] = []
        for (key, start), end in zip(sorted(packed.starts.items(), key=lambda one: one[1]), ends, strict=True):
            size = (end - start,)
            parts.append(_flat(work, written[key], size) if key in written else part(key, size[0]))
        packed_values = work.emit("concat", parts, (packed.size,), axis=0)
        work.tensors.append(replace(work.tensors[whole]))
        work.emit_to((len(work.tensors) - 1,), "assign", (packed_values,), key=packed.key)
    return prune(replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))


def _flat(work: GraphRewriter, x: int, shape: Shape) -> int:
    return work.emit("reshape", (x,), shape, shape=shape)


def _view(work: GraphRewriter, outputs: tuple[int], x: int, shape: Shape) -> None:
    attrs = MappingProxyType({"shape": shape})
    work.nodes.append(Node(op="reshape", inputs=(x,), outputs=outputs, attrs=attrs, where=work.where))
