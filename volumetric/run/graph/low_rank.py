"""Low-rank adapters as nodes of a graph: small products beside packed ones, each row of a call with its own adapters.

A weight W of a product gets ``Σ wᵢ Bᵢ Aᵢ`` added (LoRA, arXiv 2106.09685): the rows that W multiplies go through Aᵢ
``[rank, in]`` and then through Bᵢ ``[out, rank]``, for each adapter i whose weight wᵢ is not 0 for the row, and the
result is added to what W makes of them. W stays as it is stored. That is a mixture of experts whose weights are an
input of the call, `ADAPTERS`, instead of what a gate makes, and devices run it as one: an adapter that no row of a call
has is not computed, and a row has the same bits whichever adapters others have.

Products that a node computes together share a pair of factors for each adapter: A has the rows of all of them, B is
``[out of all, ranks of all]``, with zeros for the ranks that are others'. Ranks are filled up with zeros to those of
the adapter that has most, so that the pairs of a node are alike.
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
from volumetric.graph.guards import Guard
from volumetric.graph.operations.rowwise import LINEAR
from volumetric.graph.ops import Graph, Node, Tensor
from volumetric.run.plan import Plan, Value

DOWN, UP = ":a", ":b"
"""What the keys of the factors end with, after the key of the first weight and before the number of the adapter."""
ADAPTERS: Final = ":adapters"
"""Input of a plan with adapters: the weight of each for each row, float32 ``[rows, adapters]``; 0 where not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What adapters add to weights that are multiplied together.

    Attributes
    ----------
    keys, widths : the weights, and how many outputs each has
    inputs : elements of the rows that they multiply
    rank : of all of them together, of the adapter that has most
    count : adapters
    """

    keys: tuple[str, ...]
    widths: tuple[int, ...]
    inputs: int
    rank: int
    count: int

    def factor_keys(self, adapter: int) -> tuple[str, str]:
        """Keys of the factors A and B of an adapter."""
        return f"{self.keys[0]}{DOWN}{adapter}", f"{self.keys[0]}{UP}{adapter}"

    @property
    def factor_shapes(self) -> tuple[Shape, Shape]:
        """Shapes of the factors of each adapter."""
        return (self.rank, self.inputs), (sum(self.widths), self.rank)

    def factors(self, own: Mapping[str, tuple[F32Array, F32Array]]) -> tuple[F32Array, F32Array]:
        """Return the factors of an adapter that has these pairs A ``[rank, in]``, B ``[out, rank]`` by weight."""
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
    ranks : key of a weight → rank of each adapter's addition to it, 0 for none
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
    """Return what adapters of these ranks add, in the order of a graph without them.

    Raises
    ------
    UnsupportedError
        A weight is not one that a product alone reads.
    """
    overlays = [one for node in graph.nodes for one in _overlays(graph, node, ranks).values()]
    covered = {key for one in overlays for key in one.keys}
    read = [t.key for node in graph.nodes for t in (graph.tensors[i] for i in node.inputs) if t.key in ranks]
    for key in ranks:
        if key not in covered or read.count(key) > 1:
            raise UnsupportedError(
                f"{key} cannot have a low-rank overlay: it is no weight of a product alone",
                hint="overlays are for the matrices of attention and of MLPs; an adapter of another one runs merged: "
                "convert --lora",
            )
    return overlays


def _overlays(graph: Graph, node: Node, ranks: Mapping[str, Sequence[int]]) -> dict[tuple[int, ...], Overlay]:
    """What is added to the parts of a node, by their numbers: to those of a gate apart, else to all together."""
    if node.op != "linear":
        return {}
    keys, parts, attrs = graph.keys(node), node.attrs["parts"], node.attrs
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
    writer = _Writer(graph, weights)
    nodes: list[Node] = []
    for node in graph.nodes:
        overlays = _overlays(graph, node, ranks)
        nodes += writer.rewritten(node, overlays) if overlays else [node]
    return dataclasses.replace(graph, tensors=tuple(writer.tensors), nodes=tuple(nodes))


class _Writer:
    """Writes the nodes that stand for a product with adapters."""

    def __init__(self, graph: Graph, weights: int) -> None:
        self._graph, self._weights = graph, weights
        self.tensors = list(graph.tensors)

    def rewritten(self, node: Node, overlays: Mapping[tuple[int, ...], Overlay]) -> list[Node]:
        """The mixture of adapters, the product itself with their result as its residual, and its activation."""
        attrs, count = node.attrs, len(node.attrs["parts"])
        by_role = dict(zip(attrs["roles"], node.inputs, strict=True))
        if attrs["activation"] == "linear" and attrs["combine"] == "concat":
            nodes, added = self._mixture(node, by_role, overlays[tuple(range(count))])
            if "residual" in by_role:
                total = self._scratch("overlay", self._width(node))
                nodes.append(self._other(node, "binary", (added, by_role["residual"]), total, name="add"))
                added = total
            inputs = {"x": by_role.pop("x"), "residual": added} | {r: i for r, i in by_role.items() if r != "residual"}
            return [*nodes, self._like(node, inputs, node.outputs[0], residual=True)]
        if attrs["softcap"] is not None:
            raise UnsupportedError(f"{node.where}: a soft cap after an activation has no form with overlays")
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
            nodes.append(self._like(node, inputs, product, **changed))
            parts.append(product)
        last = node.outputs[0] if "residual" not in by_role else self._scratch("activated", self._width(node))
        if attrs["combine"] == "gated":
            facts = {name: attrs[name] for name in ("activation", "limit", "up_offset")}
            nodes.append(self._other(node, "gated", tuple(parts), last, **facts))
        else:
            nodes.append(self._other(node, "unary", tuple(parts), last, name=attrs["activation"], alpha=1.0, beta=0.0))
        if "residual" in by_role:
            nodes.append(self._other(node, "binary", (last, by_role["residual"]), node.outputs[0], name="add"))
        return nodes

    def _mixture(self, node: Node, by_role: Mapping[str, int], overlay: Overlay) -> tuple[list[Node], int]:
        """Nodes of what adapters add, and their result.

        Where a node runs for some rows of a call alone, as an expert does, that decides for its adapters, too.
        """
        nodes, branches, width = [], [], sum(overlay.widths)
        for adapter in range(overlay.count):
            guard = node.guard or Guard(self._weights, adapter)
            keys, shapes = overlay.factor_keys(adapter), overlay.factor_shapes
            a, b = (self._parameter(key, shape) for key, shape in zip(keys, shapes, strict=True))
            low, branch = self._scratch("low rank", overlay.rank), self._scratch("adapter", width)
            down = {"x": by_role["x"], "weight.0": a, **_norm_of(by_role)}
            first = self._product(node, down, low, overlay.rank, **_norm_attrs(node))
            last = self._product(node, {"x": low, "weight.0": b}, branch, width)
            nodes += [dataclasses.replace(one, guard=guard) for one in (first, last)]
            branches.append(branch)
        mixture = self._scratch("overlay", width)
        nodes.append(self._other(node, "mix", (self._weights, *branches), mixture, weighted=True))
        return nodes, mixture

    def _product(self, node: Node, by_role: Mapping[str, int], output: int, width: int, **attrs: Any) -> Node:
        facts = {**LINEAR, "parts": (width,), "roles": tuple(by_role), **attrs}
        return self._other(node, "linear", tuple(by_role.values()), output, **facts)

    def _like(self, node: Node, by_role: Mapping[str, int], output: int, **attrs: Any) -> Node:
        """The node with other inputs, by role, and other attributes."""
        changed = MappingProxyType({**node.attrs, **attrs, "roles": tuple(by_role)})
        return dataclasses.replace(node, inputs=tuple(by_role.values()), outputs=(output,), attrs=changed)

    def _other(self, node: Node, op: str, inputs: tuple[int, ...], output: int, **attrs: Any) -> Node:
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
    """The parameters of the norm before a product, by role."""
    return {role: i for role, i in by_role.items() if role in ("norm.weight", "norm.bias")}


def _norm_attrs(node: Node) -> dict[str, Any]:
    return {name: node.attrs[name] for name in ("norm", "norm_eps", "norm_unit_offset")}
