"""Low-rank overlays as nodes of a graph: small products beside packed ones, whose factors can change between calls.

A weight W of a product gets ``B A`` added (LoRA, arXiv 2106.09685): the rows that W multiplies go through A
``[rank, in]`` and then through B, and the result is added to what W makes of them. W stays as it is stored. The
parameters are called ``<key of W>:a`` and ``<key of W>:b``. Products that a node computes together share the rows of
their A, so ``:b`` is ``[out, ranks of all of them]``, with zeros for the ranks that are others'.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from volumetric._typing import ROWS, Shape
from volumetric.errors import UnsupportedError
from volumetric.runtime.graph.families.rowwise import LINEAR
from volumetric.runtime.graph.ops import Graph, Node, Tensor

DOWN, UP = ":a", ":b"
"""What the keys of the factors end with, after the key of the weight."""


def groups_of(graph: Graph) -> list[tuple[str, ...]]:
    """Keys of the weights that nodes multiply by, those of one node together."""
    return [weight_keys(graph, node) for node in graph.nodes if node.op == "linear"]


def weight_keys(graph: Graph, node: Node) -> tuple[str, ...]:
    """Keys of the weights of a product, in order."""
    keys = graph.keys(node)
    return tuple(keys[f"weight.{i}"] for i in range(len(node.attrs["parts"])))


def factor_shapes(graph: Graph, ranks: Mapping[str, int]) -> dict[str, Shape]:
    """Key of each factor of the overlays with these ranks → its shape.

    Raises
    ------
    UnsupportedError
        A weight is not one that a product alone reads.
    """
    shapes: dict[str, Shape] = {}
    for node in graph.nodes:
        keys = weight_keys(graph, node) if node.op == "linear" else ()
        total = sum(ranks.get(key, 0) for key in keys)
        for key, width in zip(keys, node.attrs["parts"] if total else (), strict=False):
            k = graph.tensors[node.inputs[node.attrs["roles"].index("x")]].shape[1]
            shapes[key + UP] = (width, total)
            if ranks.get(key):
                shapes[key + DOWN] = (ranks[key], k)
    read = [t.key for node in graph.nodes for t in (graph.tensors[i] for i in node.inputs) if t.key in ranks]
    for key in ranks:
        if key + DOWN not in shapes or read.count(key) > 1:
            raise UnsupportedError(
                f"{key} cannot have a low-rank overlay: it is no weight of a product alone",
                hint="overlays are for the matrices of attention and of MLPs; an adapter of another one runs merged: "
                "convert --lora",
            )
    return shapes


def with_low_rank(graph: Graph, ranks: Mapping[str, int]) -> Graph:
    """Return a graph in which products add the overlays of their weights."""
    shapes = factor_shapes(graph, ranks)
    writer = _Writer(graph, ranks, shapes)
    nodes: list[Node] = []
    for node in graph.nodes:
        adapted = node.op == "linear" and any(ranks.get(key) for key in weight_keys(graph, node))
        nodes += writer.rewritten(node) if adapted else [node]
    return dataclasses.replace(graph, tensors=tuple(writer.tensors), nodes=tuple(nodes))


class _Writer:
    """Writes the nodes that stand for a product with overlays."""

    def __init__(self, graph: Graph, ranks: Mapping[str, int], shapes: Mapping[str, Shape]) -> None:
        self._graph, self._ranks, self._shapes = graph, ranks, shapes
        self.tensors = list(graph.tensors)

    def rewritten(self, node: Node) -> list[Node]:
        """Factors down, factors up, the product itself with their result as its residual, and its activation."""
        attrs, keys = node.attrs, weight_keys(self._graph, node)
        given = dict(zip(attrs["roles"], node.inputs, strict=True))
        shared = {role: i for role, i in given.items() if role in ("x", "norm.weight", "norm.bias")}
        x = shared.pop("x")
        norm = {name: attrs[name] for name in ("norm", "norm_eps", "norm_unit_offset")}
        down = self._product(node, x, [k + DOWN for k in keys if self._ranks.get(k)], shared, **norm)
        low = down.outputs[0]
        plain = attrs["activation"] == "linear" and attrs["combine"] == "concat"
        if plain:
            residual = {"residual": given["residual"]} if "residual" in given else {}
            up = self._product(node, low, [key + UP for key in keys], residual, residual=bool(residual))
            inputs = {"x": given.pop("x"), "residual": up.outputs[0]}
            inputs |= {role: i for role, i in given.items() if role != "residual"}
            return [down, up, self._like(node, inputs, node.outputs[0], residual=True)]
        if attrs["softcap"] is not None:
            raise UnsupportedError(f"{node.where}: a soft cap after an activation has no form with overlays")
        nodes, parts = [down], []
        for group in ([i] for i in range(len(keys))) if attrs["combine"] == "gated" else [list(range(len(keys)))]:
            up = self._product(node, low, [keys[i] + UP for i in group], {})
            inputs = {"x": given["x"], "residual": up.outputs[0]}
            for at, i in enumerate(group):
                inputs |= {f"{n}.{at}": given[f"{n}.{i}"] for n in ("weight", "bias") if f"{n}.{i}" in given}
            inputs |= shared
            widths = tuple(attrs["parts"][i] for i in group)
            made = self._scratch("product", sum(widths))
            changed = {**LINEAR, **norm, "parts": widths, "residual": True}
            nodes += [up, self._like(node, inputs, made, **changed)]
            parts.append(made)
        last = node.outputs[0] if "residual" not in given else self._scratch("activated", self._width(node))
        bounds = {name: attrs[name] for name in ("limit", "up_offset")} if attrs["combine"] == "gated" else {}
        nodes.append(self._other(node, "activate", tuple(parts), last, activation=attrs["activation"], **bounds))
        if "residual" in given:
            nodes.append(self._other(node, "sum", (last, given["residual"]), node.outputs[0], scale=1.0))
        return nodes

    def _product(self, node: Node, x: int, keys: list[str], more: Mapping[str, int], **attrs: Any) -> Node:
        """A product with factors, of the rows `x`."""
        weights = {f"weight.{i}": self._parameter(key) for i, key in enumerate(keys)}
        parts = tuple(self._shapes[key][0] for key in keys)
        residual = {"residual": more["residual"]} if "residual" in more else {}
        given = {"x": x, **residual, **weights, **{role: i for role, i in more.items() if role != "residual"}}
        facts = {**LINEAR, "parts": parts, "roles": tuple(given), **attrs}
        made = self._scratch("overlay", sum(parts))
        return self._other(node, "linear", tuple(given.values()), made, **facts)

    def _like(self, node: Node, given: Mapping[str, int], output: int, **attrs: Any) -> Node:
        """The node with other inputs, by role, and other attributes."""
        changed = MappingProxyType({**node.attrs, **attrs, "roles": tuple(given)})
        return dataclasses.replace(node, inputs=tuple(given.values()), outputs=(output,), attrs=changed)

    def _other(self, node: Node, op: str, inputs: tuple[int, ...], output: int, **attrs: Any) -> Node:
        return dataclasses.replace(node, op=op, inputs=inputs, outputs=(output,), attrs=MappingProxyType(attrs))

    def _parameter(self, key: str) -> int:
        self.tensors.append(Tensor(name=key, shape=self._shapes[key], key=key, role="parameter"))
        return len(self.tensors) - 1

    def _scratch(self, name: str, width: int) -> int:
        self.tensors.append(Tensor(name=name, shape=(ROWS, width)))
        return len(self.tensors) - 1

    def _width(self, node: Node) -> int:
        return self._graph.tensors[node.outputs[0]].shape[1]
