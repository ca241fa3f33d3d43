"""Fusion of mixtures of experts: a gated sum of equal experts becomes one operation that groups rows by expert.

Layers write a mixture expert by expert, as products that are skipped if no row selects them: two nodes per expert. If
each expert is exactly two consecutive products, the device can stack the matrices of all experts and run the rows of a
call grouped by their selected experts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from volumetric.graph.fusion import is_sum
from volumetric.graph.operations.experts import experts_of
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Graph, Node
from volumetric.graph.predicates import Predicate
from volumetric.graph.pruning import prune

_PLAIN = MappingProxyType(
    {"norm": None, "combine": "concat", "activation": "linear", "residual": False, "softcap": None}
)

_GATES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"unary": {"name": "relu"}, "keep_largest": {}, "softmax": {}}
)
"""Operations of a gate after its product → attributes with which a mixture can include them."""


def fuse_experts(graph: Graph) -> Graph:
    """Fuse each `mix` of equal experts, with the choice before it and the sum after it, into one `experts`."""
    nodes: list[Node | None] = list(graph.nodes)
    made_by = {node.outputs[0]: at for at, node in enumerate(graph.nodes)}
    finder = _MixtureFinder(graph, made_by)
    for at, mix in enumerate(graph.nodes):
        node = finder.mixture(mix) if mix.op == "mix" else None
        if node is None:
            continue
        readers = list(graph.readers(mix.outputs[0]))
        after = graph.nodes[readers[0]] if len(readers) == 1 and mix.outputs[0] not in graph.outputs else None
        if after is not None and finder.adds(after, mix, at):
            [other] = [i for i in after.inputs if i != mix.outputs[0]]
            roles = (*node.attrs["roles"], "residual")
            attrs = MappingProxyType({**node.attrs, "roles": roles, "residual": True})
            node = dataclasses.replace(node, inputs=(*node.inputs, other), outputs=after.outputs, attrs=attrs)
            nodes[readers[0]] = None
        nodes[at] = node
    return prune(dataclasses.replace(graph, nodes=tuple(node for node in nodes if node is not None)))


def expert_products(graph: Graph, node: Node) -> Iterator[tuple[Node, Node]]:
    """Yield the two products of each expert of an `experts`, as nodes that name the mixture's tensors.

    The second node names the input of the first as its own: its true input is internal to the mixture.
    """
    width = graph.tensors[node.outputs[0]].width
    for inputs, attrs, last in experts_of(node.inputs, node.attrs):
        roles = {"down": "weight.0", "down_bias": "bias.0"}
        own = {"x": inputs[0], **{roles[name]: tensor for name, tensor in last.items()}}
        plain = MappingProxyType({**LINEAR, "parts": (width,), "roles": tuple(own)})
        first = dataclasses.replace(node, op="linear", inputs=tuple(inputs), attrs=attrs)
        yield first, dataclasses.replace(first, inputs=tuple(own.values()), attrs=plain)


@dataclass(frozen=True, slots=True)
class _MixtureFinder:
    """Matches the nodes before a `mix`."""

    graph: Graph
    made_by: dict[int, int]

    def mixture(self, mix: Node) -> Node | None:
        """Return the `experts` that replaces a `mix` and the nodes before it, or None if the experts differ."""
        weights, *branches = mix.inputs
        pairs = [self._expert(branch, Predicate(weights, i)) for i, branch in enumerate(branches)]
        if len(branches) < 2 or not mix.attrs["weighted"] or any(pair is None for pair in pairs):
            return None
        alike = [pair for pair in pairs if pair is not None]
        kinds = [(self._kind(first, "x", "norm.weight", "norm.bias"), self._kind(last)) for first, last in alike]
        if any(kind != kinds[0] for kind in kinds):
            return None
        choice, scoring, top_k = self._choice(weights, len(branches))
        first = alike[0][0]
        shared = {role: first.input_by_role(role) for role in ("x", "norm.weight", "norm.bias")}
        by_role: dict[str, int | None] = {"x": shared.pop("x"), "choice": choice, **shared}
        for i, (up, down) in enumerate(alike):
            own = zip(up.attrs["roles"], up.inputs, strict=True)
            by_role |= {f"{i}.{role}": tensor for role, tensor in own if role.startswith(("weight.", "bias."))}
            by_role |= {f"{i}.down": down.input_by_role("weight.0"), f"{i}.down_bias": down.input_by_role("bias.0")}
        inputs = {role: tensor for role, tensor in by_role.items() if tensor is not None}
        attrs = {
            "count": len(branches),
            "top_k": top_k,
            "scoring": scoring,
            "first": MappingProxyType({name: value for name, value in first.attrs.items() if name != "roles"}),
            "residual": False,
            "roles": tuple(inputs),
        }
        return dataclasses.replace(mix, op="experts", inputs=tuple(inputs.values()), attrs=MappingProxyType(attrs))

    def adds(self, node: Node, mix: Node, at: int) -> bool:
        """Return whether a node is the sum of a mixture and of one value computed before it."""
        plain = is_sum(self.graph, node) and node.predicate == mix.predicate
        others = [i for i in node.inputs if i != mix.outputs[0]]
        return plain and len(others) == 1 and self.made_by.get(others[0], -1) < at

    def _expert(self, value: int, predicate: Predicate) -> tuple[Node, Node] | None:
        """Return the two products of an expert: the first may have a norm, gate or activation, the second is plain."""
        last = self._single_reader_product(value, predicate)
        if last is None or len(last.attrs["parts"]) > 1 or not _has(last, _PLAIN):
            return None
        first = self._single_reader_product(last.inputs[0], predicate)
        if first is None or first.attrs["residual"] or first.attrs["softcap"] is not None:
            return None
        return (first, last) if first.attrs["combine"] == "gated" or len(first.attrs["parts"]) == 1 else None

    def _single_reader_product(self, value: int, predicate: Predicate) -> Node | None:
        """Return the product that computes `value` under this guard, if exactly one node reads it."""
        at = self.made_by.get(value)
        node = None if at is None else self.graph.nodes[at]
        fits = node is not None and node.op == "linear" and node.predicate == predicate and self._read_once(value)
        return node if fits else None

    def _read_once(self, value: int) -> bool:
        return value not in self.graph.outputs and len(list(self.graph.readers(value))) == 1

    def _kind(self, node: Node, *shared: str) -> tuple[Any, ...]:
        """Return what all experts must have in common: attributes, shapes, and the tensors that all of them read."""
        shapes = tuple(self.graph.tensors[i].shape for i in node.inputs)
        return dict(node.attrs), shapes, tuple(node.input_by_role(role) for role in shared)

    def _choice(self, weights: int, count: int) -> tuple[int, str, int]:
        """Return the tensor that the expert weights are computed from, the scoring, and the most experts per row."""
        value, ops = weights, []
        while len(ops) < 3 and (node := self._step(value)) is not None:
            ops.append(node)
            value = node.inputs[0]
        names = [node.op for node in ops]
        largest = {node.op: node for node in ops}.get("keep_largest")
        top_k = count if largest is None else min(largest.attrs["k"], count)
        if names[:2] == ["softmax", "keep_largest"]:
            return ops[1].inputs[0], "softmax", top_k
        if names[:3] == ["unary", "keep_largest", "softmax"]:
            return ops[2].inputs[0], "softmax_all", top_k
        if names[:2] == ["unary", "keep_largest"]:
            return ops[1].inputs[0], "largest", top_k
        return (ops[0].inputs[0], "softmax", count) if names[:1] == ["softmax"] else (weights, "given", count)

    def _step(self, value: int) -> Node | None:
        """Return the node of a gate that computed a value for one reader, if a mixture can include it."""
        at = self.made_by.get(value)
        node = None if at is None else self.graph.nodes[at]
        if node is None or not self._read_once(value):
            return None
        known = node.op in _GATES and len(node.inputs) == 1 and _has(node, _GATES[node.op])
        return node if known else None


def _has(node: Node, attrs: Mapping[str, Any]) -> bool:
    return all(node.attrs[name] == value for name, value in attrs.items())
