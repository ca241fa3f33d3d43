"""A graph executor in NumPy with hooks before and after each node, for measurement and change of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.liveness import last_use, view_roots
from volumetric.graph.operations import OPS
from volumetric.graph.ops import Graph, Node
from volumetric.network import Params


class NumpyGraphRun:
    """Executor that loads parameters when a node needs them, and frees values, also outputs, after their last use."""

    def __init__(self, graph: Graph, params: Params) -> None:
        self.graph: Graph = graph
        self._params = params
        self.root: list[int] = view_roots(graph)
        self._keys = {i: t.key for i, t in enumerate(graph.tensors) if t.key is not None}
        self._last = last_use(replace(graph, outputs=()))  # subclasses read outputs when they are computed

    def run_nodes(self, inputs: Mapping[int, Array], *, stop: int | None = None) -> None:
        """Run the nodes before number `stop`, by default all."""
        constants = {
            i: v.astype(np.float32) if np.issubdtype(v.dtype, np.floating) else v
            for i, v in self.graph.constants.items()
        }
        values: dict[int, Array] = {**constants, **inputs}
        with np.errstate(all="ignore"):
            for at, node in enumerate(self.graph.nodes[:stop]):
                self.before_node(node, values)
                for i in node.inputs:
                    if i not in values:
                        values[i] = self.parameter(self._keys[i])
                outputs = OPS[node.op].run([values[i] for i in node.inputs], node.attrs)
                values |= zip(node.outputs, outputs, strict=True)
                self.after_node(node, values)
                for i in [i for i in values if self._last[i] <= at and i not in constants]:
                    del values[i]

    def before_node(self, node: Node, values: dict[int, Array]) -> None:
        """Hook before a node runs; `values` has its inputs, but not yet its parameters."""

    def after_node(self, node: Node, values: dict[int, Array]) -> None:
        """Hook after a node has run."""

    def parameter(self, key: str) -> Array:
        """Values of a parameter; mapped pages of the file are released."""
        values = self._params[key].values()
        self._params[key].release()
        return values

    def product_key(self, node: Node) -> str | None:
        """Key of the parameter that a node multiplies rows by, None if it is not a product."""
        if node.op != "gemm" or not node.attrs["trans_b"]:
            return None
        return self._keys.get(self.root[node.inputs[1]])

    def table_key(self, node: Node) -> str | None:
        """Key of the parameter whose rows a node looks up, None if it does not."""
        return self._keys.get(self.root[node.inputs[0]]) if node.op == "gather_rows" else None
