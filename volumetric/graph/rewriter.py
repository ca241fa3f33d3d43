"""Collects the result of a rewrite of a graph: added tensors, and the nodes in their new order."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from volumetric.base._typing import Shape
from volumetric.graph.ops import Graph, Node, Tensor


class GraphRewriter:
    """Tensors of `graph` and added ones, and the nodes emitted so far; `where` is the layer of emitted nodes."""

    def __init__(self, graph: Graph) -> None:
        self.tensors: list[Tensor] = list(graph.tensors)
        self.nodes: list[Node] = []
        self.where = ""

    def shape(self, tensor: int) -> Shape:
        """Shape of a tensor."""
        return self.tensors[tensor].shape

    def emit(self, op: str, inputs: Sequence[int], shape: Shape, /, **attrs: Any) -> int:
        """Add a node and its output; return the output."""
        output = len(self.tensors)
        self.tensors.append(Tensor(name=f"piece of {op}", shape=shape))
        return self.emit_to((output,), op, inputs, **attrs)

    def emit_to(self, outputs: tuple[int, ...], op: str, inputs: Sequence[int], /, **attrs: Any) -> int:
        """Add a node whose outputs are existing tensors."""
        self.nodes.append(
            Node(op=op, inputs=tuple(inputs), outputs=outputs, attrs=MappingProxyType(attrs), where=self.where)
        )
        return outputs[0]
