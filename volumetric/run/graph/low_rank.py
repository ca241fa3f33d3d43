"""Low-rank adapters as nodes of a graph: small products next to packed ones, with separate adapters for each row.

A weight W of a product becomes ``W + Σ wᵢ Bᵢ Aᵢ`` (LoRA, arXiv 2106.09685): for each adapter i whose weight wᵢ is not 0
for a row, the row is multiplied by Aᵢ ``[rank, in]`` and then by Bᵢ ``[out, rank]``, and the result is added to the
product with W. W stays as it is stored. This is a mixture of experts whose weights are an input of the call,
`ADAPTERS`, instead of the output of a gate, and devices run it as a mixture: an adapter that no row of a call uses is
not computed, and a row has the same bits for any adapters of other rows.

Products that one node computes share a pair of factors for each adapter: A has the rows of all of them, B is
``[out of all, ranks of all]``, with zeros for the ranks of the others. Ranks are padded with zeros to the largest rank
of all adapters, so that the pairs of a node have equal shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from volumetric.base._typing import ROWS, F32Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.graph.predicates import Predicate
from volumetric.run.plan import Plan, Value

DOWN, UP = ":a", ":b"
"""Infixes of the keys of factors, between the key of the first weight and the number of the adapter."""
ADAPTERS: Final = ":adapters"
"""Input of a plan with adapters: the weight of each for each row, float32 ``[rows, adapters]``; 0 by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Adapters of weights that one node multiplies together.

    Attributes
    ----------
    keys, widths : the weights, and the number of outputs of each
    inputs : elements of the rows that they multiply
    rank : total rank of all of them, of the adapter with the largest
    count : number of adapters
    """

    keys: tuple[str, ...]
    widths: tuple[int, ...]
    inputs: int
    rank: int
    count: int

    def factor_keys(self, adapter: int) -> tuple[str, str]:
        """Return the keys of the factors A and B of an adapter."""
        return f"{self.keys[0]}{DOWN}{adapter}", f"{self.keys[0]}{UP}{adapter}"

    @property
    def factor_shapes(self) -> tuple[Shape, Shape]:
        """Shapes of the factors of each adapter."""
        return (self.rank, self.inputs), (sum(self.widths), self.rank)

    def factors(self, own: Mapping[str, tuple[F32Array, F32Array]]) -> tuple[F32Array, F32Array]:
        """Return the joint factors of an adapter with the pairs A ``[rank, in]``, B ``[out, rank]`` of each weight."""
        down, up = (np.zeros(shape, np.float32) for shape in self.factor_shapes)
        row = at = 0
        for key, width in zip(self.keys, self.widths, strict=True):
            if key in own:
                a, b = own[key]
                down[at : at + len(a)] = a
                up[row : row + width, at : at + len(a)] = b
                at += len(a)
            row += width
        return down, up


def with_adapters(plan: Plan, ranks: Mapping[str, Sequence[int]]) -> Plan:
    """Return a plan whose products add adapters, with the input `ADAPTERS`.

    Parameters
    ----------
    ranks : key of a weight → rank of each adapter of it, 0 for none
    """
    count = len(next(iter(ranks.values())))
    value = Value(name=ADAPTERS, shape=(ROWS, count), default=0.0)
    return dataclasses.replace(
        plan,
        values=(*plan.values, value),
        inputs=MappingProxyType({**plan.inputs, ADAPTERS: len(plan.values)}),
        low_rank=MappingProxyType({key: tuple(each) for key, each in ranks.items()}),
    )


def overlays_of(graph: Graph, ranks: Mapping[str, Sequence[int]]) -> list[Overlay]:
    """Return the overlays of adapters with these ranks, in the order of a graph without them.

    Raises
    ------
    UnsupportedError
        Something other than a product reads the weight.
    """
    overlays = [one for node in graph.nodes for one in _overlays(graph, node, ranks).values()]
    covered = {key for one in overlays for key in one.keys}
    read = [t.key for node in graph.nodes for t in (graph.tensors[i] for i in node.inputs) if t.key in ranks]
    for key in ranks:
        if key not in covered or read.count(key) > 1:
            raise UnsupportedError(
                f"{key} cannot have a low-rank overlay: it is not the weight of a product only",
                hint="overlays are for the matrices of attention and of MLPs; merge adapters of other weights: "
                "convert --lora",
            )
    return overlays


def _overlays(graph: Graph, node: Node, ranks: Mapping[str, Sequence[int]]) -> dict[tuple[int, ...], Overlay]:
    """Return the overlays of the parts of a node by part numbers: separate for a gated product, else one for all."""
    if node.op != "linear":
        return {}
    keys, parts, attrs = graph.keys_by_role(node), node.attrs["parts"], node.attrs
    groups = [(i,) for i in range(len(parts))] if attrs["combine"] == "gated" else [tuple(range(len(parts)))]
    overlays: dict[tuple[int, ...], Overlay] = {}
    for group in groups:
        own = tuple(keys[f"weight.{i}"] for i in group)
        totals = [sum(each) for each in zip(*(ranks[key] for key in own if key in ranks), strict=True)]
        if any(totals):
            k = graph.tensors[node.inputs[attrs["roles"].index("x")]].shape[1]
            widths = tuple(parts[i] for i in group)
            overlays[group] = Overlay(keys=own, widths=widths, inputs=k, rank=max(totals), count=len(totals))
    return overlays


def with_low_rank(graph: Graph, ranks: Mapping[str, Sequence[int]], weights: int) -> Graph:
    """Return a graph in which products add adapters; `weights` is the tensor of `ADAPTERS`."""
    overlays_of(graph, ranks)
    writer = _OverlayWriter(graph, weights)
    nodes: list[Node] = []
    for node in graph.nodes:
        overlays = _overlays(graph, node, ranks)
        nodes += writer.rewrite(node, overlays) if overlays else [node]
    return dataclasses.replace(graph, tensors=tuple(writer.tensors), nodes=tuple(nodes))


class _OverlayWriter:
    """Writes the nodes of a product with adapters."""

    def __init__(self, graph: Graph, weights: int) -> None:
        self._graph, self._weights = graph, weights
        self.tensors = list(graph.tensors)

    def rewrite(self, node: Node, overlays: Mapping[tuple[int, ...], Overlay]) -> list[Node]:
        """Return the mixture of adapters, the product with their sum as its residual, and its activation."""
        attrs, count = node.attrs, len(node.attrs["parts"])
        by_role = dict(zip(attrs["roles"], node.inputs, strict=True))
        if attrs["activation"] == "linear" and attrs["combine"] == "concat":
            nodes, added = self._mixture(node, by_role, overlays[tuple(range(count))])
            if "residual" in by_role:
                total = self._scratch("overlay", self._width(node))
                nodes.append(self._new_node(node, "binary", (added, by_role["residual"]), total, name="add"))
                added = total
            inputs = {"x": by_role.pop("x"), "residual": added} | {r: i for r, i in by_role.items() if r != "residual"}
            return [*nodes, self._with_inputs(node, inputs, node.outputs[0], residual=True)]
        if attrs["softcap"] is not None:
            raise UnsupportedError(f"{node.where}: overlays do not support a soft cap after an activation")
        nodes, parts = [], []
        for group in [(i,) for i in range(count)] if attrs["combine"] == "gated" else [tuple(range(count))]:
            inputs = {"x": by_role["x"]}
            if group in overlays:
                more, inputs["residual"] = self._mixture(node, by_role, overlays[group])
                nodes += more
            for at, i in enumerate(group):
                inputs |= {f"{n}.{at}": by_role[f"{n}.{i}"] for n in ("weight", "bias") if f"{n}.{i}" in by_role}
            inputs |= _norm_of(by_role)
            widths = tuple(attrs["parts"][i] for i in group)
            product = self._scratch("product", sum(widths))
            changed = {**LINEAR, **_norm_attrs(node), "parts": widths, "residual": "residual" in inputs}
            nodes.append(self._with_inputs(node, inputs, product, **changed))
            parts.append(product)
        last = node.outputs[0] if "residual" not in by_role else self._scratch("activated", self._width(node))
        if attrs["combine"] == "gated":
            facts = {name: attrs[name] for name in ("activation", "limit", "up_offset")}
            nodes.append(self._new_node(node, "gated", tuple(parts), last, **facts))
        else:
            nodes.append(
                self._new_node(node, "unary", tuple(parts), last, name=attrs["activation"], alpha=1.0, beta=0.0)
            )
        if "residual" in by_role:
            nodes.append(self._new_node(node, "binary", (last, by_role["residual"]), node.outputs[0], name="add"))
        return nodes

    def _mixture(self, node: Node, by_role: Mapping[str, int], overlay: Overlay) -> tuple[list[Node], int]:
        """Return the nodes of the sum of adapters, and its tensor.

        If a node has a predicate, as an expert does, its adapters have the same.
        """
        nodes, branches, width = [], [], sum(overlay.widths)
        for adapter in range(overlay.count):
            predicate = node.predicate or Predicate(self._weights, adapter)
            keys, shapes = overlay.factor_keys(adapter), overlay.factor_shapes
            a, b = (self._parameter(key, shape) for key, shape in zip(keys, shapes, strict=True))
            low, branch = self._scratch("low rank", overlay.rank), self._scratch("adapter", width)
            down = {"x": by_role["x"], "weight.0": a, **_norm_of(by_role)}
            first = self._product(node, down, low, overlay.rank, **_norm_attrs(node))
            last = self._product(node, {"x": low, "weight.0": b}, branch, width)
            nodes += [dataclasses.replace(one, predicate=predicate) for one in (first, last)]
            branches.append(branch)
        mixture = self._scratch("overlay", width)
        nodes.append(self._new_node(node, "mix", (self._weights, *branches), mixture, weighted=True))
        return nodes, mixture

    def _product(self, node: Node, by_role: Mapping[str, int], output: int, width: int, **attrs: Any) -> Node:
        facts = {**LINEAR, "parts": (width,), "roles": tuple(by_role), **attrs}
        return self._new_node(node, "linear", tuple(by_role.values()), output, **facts)

    def _with_inputs(self, node: Node, by_role: Mapping[str, int], output: int, **attrs: Any) -> Node:
        """Return the node with other inputs, by role, and other attributes."""
        changed = MappingProxyType({**node.attrs, **attrs, "roles": tuple(by_role)})
        return dataclasses.replace(node, inputs=tuple(by_role.values()), outputs=(output,), attrs=changed)

    def _new_node(self, node: Node, op: str, inputs: tuple[int, ...], output: int, **attrs: Any) -> Node:
        return dataclasses.replace(node, op=op, inputs=inputs, outputs=(output,), attrs=MappingProxyType(attrs))

    def _parameter(self, key: str, shape: Shape) -> int:
        self.tensors.append(Tensor(name=key, shape=shape, key=key, role="parameter"))
        return len(self.tensors) - 1

    def _scratch(self, name: str, width: int) -> int:
        self.tensors.append(Tensor(name=name, shape=(ROWS, width)))
        return len(self.tensors) - 1

    def _width(self, node: Node) -> int:
        return self._graph.tensors[node.outputs[0]].width


def _norm_of(by_role: Mapping[str, int]) -> dict[str, int]:
    """Return the parameters of the norm before a product, by role."""
    return {role: i for role, i in by_role.items() if role in ("norm.weight", "norm.bias")}


def _norm_attrs(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("norm", "norm_eps", "norm_unit_offset")}
