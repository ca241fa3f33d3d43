"""Fuse cells with the products before them and the norm after them into one step.

A node's weights are read once, and intermediate values stay in the first-level cache.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from volumetric.devices.cpu.graph.cells import UNIT, results
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.cells import CODES
from volumetric.devices.cpu.kernels.graph.fused_cells import NODES_ARGUMENTS, nodes_scratch
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import panel_shape
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.liveness import view_roots
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune


def fuse_cells(graph: Graph) -> Graph:
    """Let cells compute their products themselves if nothing else reads these.

    Such a ``cell_nodes`` has as inputs m [R,K], h [R,H], their weights [n or 1,K,bH] and [n or 1,H,bH], the bias, the
    previous states, if any, the gain [n or 1,H] of the norm, and the set index of each node if the weights are tables
    of sets [s,…]; as outputs those of the ``cell`` and, with a gain, the result of the norm. Attributes: ``cell``;
    ``keep``: whether kept values are among the outputs; ``heads``, of the norm, 0 without; ``eps``; ``ids``: whether
    the weights are tables.
    """
    matching = _CellMatcher(graph)
    fused_cells: dict[int, Node] = {}
    dropped: set[int] = set()
    for node in graph.nodes:
        products = matching.products(node) if node.op == "cell" else None
        if products is None:
            continue
        sets = matching.sets(products)
        inputs = (*(p.inputs[0] for p in products), *sets.weights, *node.inputs[2:])
        outputs, norm = matching.read_outputs(node), matching.norm(node)
        attrs: dict[str, Any] = {**node.attrs, "keep": outputs == node.outputs, "heads": 0, "eps": 0.0}
        attrs["ids"] = sets.ids is not None
        if norm is not None:
            inputs, outputs = (*inputs, norm.gain), (*outputs, norm.node.outputs[0])
            attrs |= {"heads": norm.heads, "eps": norm.eps}
            dropped.add(norm.node.outputs[0])
        inputs = inputs if sets.ids is None else (*inputs, sets.ids)
        fused = dataclasses.replace(
            node, op="cell_nodes", inputs=inputs, outputs=outputs, attrs=MappingProxyType(attrs)
        )
        fused_cells[node.outputs[0]] = fused
    if not fused_cells:
        return graph
    nodes = tuple(fused_cells.get(n.outputs[0], n) for n in graph.nodes if n.outputs[0] not in dropped)
    return prune(dataclasses.replace(graph, nodes=nodes))


@dataclass(frozen=True, slots=True)
class _WeightSets:
    """Weights of messages and of states, and the set of each node; None: each has its own, or all have the same."""

    weights: tuple[int, int]
    ids: int | None = None


@dataclass(frozen=True, slots=True)
class _CellNorm:
    """The norm of a cell's result: the product with the gain, the gain, and the input of the norm."""

    node: Node
    gain: int
    heads: int
    eps: float


class _CellMatcher:
    """Writers and readers of the tensors of a graph, ignoring views."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._root = graph, view_roots(graph)
        self._norms = [node for node in graph.nodes if node.op == "norm"]
        self._written = {graph.tensors[i].key for node in graph.nodes for i in node.outputs} - {None}
        self._makers = {i: (at, node) for at, node in enumerate(graph.nodes) for i in node.outputs}
        self._reads = Counter(self._root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
        self._reads.update(self._root[i] for i in graph.outputs)
        self._readers = {self._root[i]: node for node in graph.nodes if node.op != "reshape" for i in node.inputs}

    def read_outputs(self, cell: Node) -> tuple[int, ...]:
        """Outputs of a cell, without kept values that nothing reads."""
        *others, last = cell.outputs
        return cell.outputs if not CELLS[cell.attrs["cell"]].keeps or self._reads[last] else tuple(others)

    def products(self, cell: Node) -> tuple[Node, Node] | None:
        """Return both products before a cell, if nothing else reads them."""
        of, shapes = CELLS[cell.attrs["cell"]], [self._graph.tensors[i].shape for i in cell.inputs]
        rows, wide = shapes[0]
        n = shapes[2][0]
        if of.apart or not rows:
            return None
        products: list[Node] = []
        for i in cell.inputs[:2]:
            maker = self._makers.get(self._root[i])
            if maker is None or not self._is_plain(maker[1], (n, rows, wide)) or self._reads[self._root[i]] != 1:
                return None
            products.append(maker[1])
        first, second = products
        sets = {self._graph.tensors[node.inputs[1]].shape[0] for node in products}
        return (first, second) if len(sets) == 1 else None

    def sets(self, products: tuple[Node, Node]) -> _WeightSets:
        """Return the weights before they are copied to each node of a set."""
        own = products[0].inputs[1], products[1].inputs[1]
        makers = [self._makers.get(self._root[i]) for i in own]
        copies = [node for _, node in filter(None, makers) if node.op == "gather_rows"]
        if len(copies) < 2 or any(self._changes(node.inputs[0]) for node in copies):
            return _WeightSets(own)
        first, second = (self._graph.constants.get(node.inputs[1]) for node in copies)
        if first is None or second is None or not np.array_equal(first, second):
            return _WeightSets(own)
        return _WeightSets((copies[0].inputs[0], copies[1].inputs[0]), copies[0].inputs[1])

    def _is_plain(self, node: Node, sizes: tuple[int, int, int]) -> bool:
        """Whether a product multiplies rows of nodes by a matrix per node, or by one for all."""
        n, rows, wide = sizes
        attrs = node.attrs
        if node.op != "gemm" or len(node.inputs) != 2 or attrs["trans_a"] or attrs["trans_b"]:
            return False
        (ga, m, k), (gb, _, columns) = (self._graph.tensors[i].shape for i in node.inputs)
        persistent = any(self._changes(i) for i in node.inputs)
        whole = ga * m == rows and columns == wide and k > 0 and attrs["groups"] == ga
        return whole and gb in (1, n) and (gb == 1 or ga == n) and attrs["activation"] == "linear" and not persistent

    def _changes(self, i: int) -> bool:
        """Whether a tensor is a buffer that some node writes, so that reading it later would see other values."""
        return self._graph.tensors[self._root[i]].key in self._written

    def norm(self, cell: Node) -> _CellNorm | None:
        """The norm of a cell's result and the product with its gain, if nothing else reads the values in between."""
        y = cell.outputs[0]
        rows, size = self._graph.tensors[y].shape
        n = self._graph.tensors[cell.inputs[2]].shape[0]
        node = next((node for node in self._norms if self._root[node.inputs[0]] == y), None)
        if node is None or node.inputs[1:] or node.attrs["kind"] != "layer":
            return None
        product = self._readers.get(node.outputs[0])
        only = sum(self._reads[i] for i in node.outputs) == self._reads[node.outputs[0]] == 1
        if not only or product is None or product.op != "binary" or product.attrs["name"] != "mul":
            return None
        left, right = product.inputs
        maker = self._makers.get(self._root[right])
        fits = self._graph.tensors[left].shape == (n, rows // n, size) and self._root[left] == node.outputs[0]
        known = maker is None or maker[0] < self._makers[y][0]
        if not fits or not known or self._graph.tensors[right].shape not in ((n, 1, size), (1, 1, size)):
            return None
        width = self._graph.tensors[node.inputs[0]].shape[-1]
        return None if self._changes(right) else _CellNorm(product, right, size // width, node.attrs["eps"])


@rule("cell_nodes")
def cell_nodes(builder: StepBuilder, node: Node) -> None:
    """All nodes."""
    of = CELLS[node.attrs["cell"]]
    m, h, from_m, from_h, bias, *rest = node.inputs
    heads = node.attrs["heads"]
    ids = rest.pop() if node.attrs["ids"] else None
    gain, shown = (rest.pop(), node.outputs[-1]) if heads else (None, None)
    rows, size = builder.shape(node.outputs[0])
    nodes, columns = builder.shape(bias)
    deep = builder.shape(m)[2]
    _, wide = panel_shape()
    builder.want_scratch(nodes_scratch(columns, wide))
    reads = {"m": m, "h": h, "from_m": from_m, "from_h": from_h, "bias": bias}
    builder.add(
        "cell_nodes",
        NODES_ARGUMENTS,
        CODES.index(of.name),
        of.blocks,
        *panel_shape(),
        reads={**reads, "before": rest[0] if rest else None, "gain": gain, "ids": ids},
        writes={**results(node, keep=node.attrs["keep"]), "shown": shown},
        work=2 * rows * (deep + size) * columns / 90 + UNIT * rows * size + move_nanoseconds(builder.sizes[from_m]),
        nodes=nodes,
        batch=rows // nodes,
        deep=deep,
        size=size,
        apart=int(builder.shape(from_m)[0] > 1),
        gains=int(gain is not None and builder.shape(gain)[0] > 1),
        heads=heads,
        eps=float(node.attrs["eps"]),
    )
