"""What a rewrite of a graph collects: tensors that it adds, and the nodes in their new order."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from volumetric.base._typing import Shape
from volumetric.graph.ops import Graph, Node, Tensor


class Rewriting:
    """Tensors of `graph` and those added, and the nodes written so far; `where` names the layer of what is emitted."""

    def __init__(self, graph: Graph) -> None:
        self.tensors = list(graph.tensors)
        self.nodes: list[Node] = []
        self.where = ""

    def shape(self, tensor: int) -> Shape:
        """Shape of a tensor."""
        return self.tensors[tensor].shape

    def emit(self, op: str, inputs: Sequence[int], shape: Shape, /, **attrs: Any) -> int:
        """Add a node, and the tensor that it makes."""
        output = len(self.tensors)
        self.tensors.append(Tensor(name=f"piece of {op}", shape=shape))
        return self.emit_to((output,), op, inputs, **attrs)

    def emit_to(self, outputs: tuple[int, ...], op: str, inputs: Sequence[int], /, **attrs: Any) -> int:
        """Add a node that makes tensors which exist."""
        self.nodes.append(
            Node(op=op, inputs=tuple(inputs), outputs=outputs, attrs=MappingProxyType(attrs), where=self.where)
        )
        return outputs[0]
