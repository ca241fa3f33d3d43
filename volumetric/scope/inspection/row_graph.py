"""All numbers that one row passes through: a graph for one row (or tick) with the value of every tensor, in float64."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.binding import bind
from volumetric.graph.interpret import Interpreter
from volumetric.graph.operations import OPS
from volumetric.graph.ops import HELD, Graph, Node
from volumetric.graph.unroll_scans import unroll_scans, write_out
from volumetric.run.graph.network_graph import DIALECT

EXPLAINED: Final = DIALECT - {"causal_conv", "selective_scan", "grouped_norm"}
"""Fused row operations of these graphs; the others are written in operations that can be explained one by one."""
WRITTEN_OUT: Final = frozenset({"cross_attend", "distance_attend", "weigh_rows", "grouped_norm"})
"""General operations that are decomposed, too."""
MOVEMENT: Final = frozenset(
    {"reshape", "permute", "slice", "flip", "last", "pad", "concat", "broadcast", "gather_rows", "unfold", "assign"}
)
"""Operations whose every output is one of their inputs, or 0."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a tensor is, if it is not the result of an operation within the layer.

    Attributes
    ----------
    kind : layer (the output of a layer), input (of the network), parameter, state (before this row), constant
    name : coordinate, name of the input, or key
    delay : ticks or rows since then
    """

    kind: Literal["layer", "input", "parameter", "state", "constant"]
    name: str
    delay: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class RowGraph:
    """A graph for one call, and the value of every tensor.

    Attributes
    ----------
    outputs : coordinate of a layer → its output
    origins : tensors at which a trace ends, in addition to parameters, states and constants
    sums : input tensor → what it is the sum of: origins and their values
    row : index of the explained row on the first axis of outputs
    """

    graph: Graph
    values: Mapping[int, Array]
    outputs: Mapping[str, int]
    origins: Mapping[int, Origin]
    sums: Mapping[int, tuple[tuple[Origin, Array], ...]] = field(default_factory=dict)
    row: int = 0
    _sources: dict[int, list[tuple[int, Array]]] = field(default_factory=dict)

    @cached_property
    def producers(self) -> dict[int, tuple[Node, int]]:
        """Tensor → the node that writes it, and which of its outputs it is."""
        return {i: (node, k) for node in self.graph.nodes for k, i in enumerate(node.outputs)}

    @cached_property
    def states_after(self) -> dict[str, int]:
        """Key of a state → the tensor of its value after the row."""
        return {
            key: i
            for i, (node, _) in self.producers.items()
            for key in [self.graph.tensors[i].key or node.attrs.get("key")]
            if key is not None
        }

    def origin(self, tensor: int) -> Origin | None:
        """Return what a tensor is, or None for a result of an operation."""
        if tensor in self.origins:
            return self.origins[tensor]
        of = self.graph.tensors[tensor]
        if tensor in self.producers:
            return None
        if of.role == "parameter":
            return Origin("parameter", of.key or of.name)
        if of.role == "state":
            return Origin("state", of.key or of.name)
        return Origin("input" if of.role == "input" else "constant", of.name)

    def resolve(self, tensor: int, flat: int, *, root: bool = False) -> tuple[int, int] | None:
        """Follow one number back through operations that only move data; None: it is a 0 that was put there.

        Parameters
        ----------
        root : start even if the tensor itself is an output of a layer
        """
        while root or self.origin(tensor) is None:
            root = False
            if tensor not in self.producers:
                break
            node, k = self.producers[tensor]
            if node.op == "unary" and _passes_on(node):
                tensor = node.inputs[0]
                continue
            if node.op not in MOVEMENT or k:
                break
            for i, source in self._moved(node):
                at = int(source[flat])
                if at >= 0:
                    tensor, flat = i, at
                    break
            else:
                return None
        return tensor, flat

    def _moved(self, node: Node) -> list[tuple[int, Array]]:
        """Return each input of an operation that moves data, and where each output element stands in it, or -1."""
        key = node.outputs[0]
        if key not in self._sources:
            sources: list[tuple[int, Array]] = []
            for n, i in enumerate(node.inputs):
                if (node.op == "gather_rows" and n) or (node.op == "assign" and n):
                    continue  # ids, and whether to write
                args = [self._probe(j, marked=m == n, ids=node.op == "gather_rows" and m == 1)
                        for m, j in enumerate(node.inputs)]  # fmt: skip
                [y, *_] = OPS[node.op].run(args, node.attrs)
                sources.append((i, np.asarray(y).ravel().astype(np.int64) - 1))
            self._sources[key] = sources
        return self._sources[key]

    def _probe(self, tensor: int, *, marked: bool, ids: bool) -> Array:
        value = self.values[tensor]
        if ids:
            return value
        return np.arange(1.0, value.size + 1).reshape(value.shape) if marked else np.zeros(value.shape)


def _passes_on(node: Node) -> bool:
    """Return whether a function of one number is the identity."""
    attrs = node.attrs
    return attrs["name"] == "linear" or (attrs["name"] == "affine" and attrs["alpha"] == 1 and attrs["beta"] == 0)


def prepare_graph(graph: Graph, rows: int) -> Graph:
    """Bind a graph to a number of rows, without scans and without operations that others explain better."""
    bound = unroll_scans(bind(graph, rows))
    return write_out(bound, lambda node: node.op not in WRITTEN_OUT)


def evaluate(graph: Graph, inputs: Sequence[Array], buffers: MutableMapping[str, Array]) -> dict[int, Array]:
    """Return the value of every tensor of a graph of fixed shapes, in float64; `buffers` become those after it."""
    whole = replace(graph, outputs=tuple(i for node in graph.nodes for i in node.outputs) or graph.outputs)
    interpreter = Interpreter(whole, np.float64)
    values = interpreter.begin(inputs, buffers)
    before = dict(values)  # the interpreter drops what no later node reads
    interpreter.evaluate(values, buffers)
    return {**before, **values}


def buffers_of(graph: Graph, params: Mapping[str, Any], states: Mapping[str, Array], position: int) -> dict[str, Array]:
    """Return the buffers of a graph: decoded parameters, and states, zeros where there is none yet."""
    buffers: dict[str, Array] = {}
    for key, tensor in graph.tensors_by_key.items():
        shape = tuple(position if n == HELD else n for n in tensor.shape)
        if tensor.role == "parameter":
            buffers[key] = params[key].values().astype(np.float64).reshape(shape)
        elif key in states:
            kind = np.int32 if tensor.dtype == "int32" else np.float64
            buffers[key] = np.asarray(states[key]).astype(kind).reshape(shape)
        else:
            buffers[key] = np.zeros(shape, np.int32 if tensor.dtype == "int32" else np.float64)
    return buffers
