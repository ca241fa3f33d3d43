"""A network and its weights as the body of a function: one row in, one row out, states from call to call."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import UnsupportedError
from volumetric.codegen import image_code, recurrent_code, selection_code
from volumetric.codegen.code_names import RESERVED, identifier, identifiers, layer_names
from volumetric.codegen.loop_writer import ArrayView, LoopWriter
from volumetric.codegen.operation_code import CODE, copy_array, gemm_code
from volumetric.codegen.source_language import SourceLanguage
from volumetric.graph.operations import OPS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.unroll_scans import unroll_scans, write_out
from volumetric.network import Network
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore
from volumetric.run.graph.network_graph import graph_of
from volumetric.run.lower import lower

MAX_WEIGHTS: Final = 200_000
"""Numbers of a file of source code; more take long to compile, and to read."""
ONNX: Final = "larger networks, and those with such layers, are for ONNX: volumetric convert MODEL out.onnx"
_REGISTERS: Final = (image_code, recurrent_code, selection_code)  # importing them fills CODE


@dataclass(frozen=True, slots=True)
class NetworkCode:
    """A network as code.

    Attributes
    ----------
    lines : body of the function
    helpers : names of the helper functions that it calls
    inputs, outputs : name → shape of a row
    weights : name → values
    states : name → shape
    results : name of an output → name of its array
    """

    lines: list[str]
    helpers: list[str]
    inputs: dict[str, Shape]
    outputs: dict[str, Shape]
    weights: dict[str, Array]
    states: dict[str, Shape]
    results: dict[str, str]


def network_code(network: Network, params: Mapping[str, WeightStore], language: SourceLanguage) -> NetworkCode:
    """Return a network as code in a language.

    Raises
    ------
    UnsupportedError
        The network has more than `MAX_WEIGHTS` weights, a layer that needs more than one row or its position, or an
        operation without code.
    """
    count = sum(prod(store.shape) for store in params.values())
    if count > MAX_WEIGHTS:
        raise UnsupportedError(
            f"the network has {count:,} weights, and source code holds at most {MAX_WEIGHTS:,}", hint=ONNX
        )
    try:
        graph = graph_of(network, 1, resumes=True)
    except UnsupportedError as error:
        raise UnsupportedError(f"the network cannot be written as source code: {error}", hint=ONNX) from None
    graph = unroll_scans(write_out(graph, lambda node: node.op in CODE or node.op == "scan"))
    graph = write_out(graph, lambda node: node.op in CODE)
    odd = next((node for node in graph.nodes if node.op not in CODE and node.op not in _SILENT), None)
    if odd is not None:
        kind = type(network.layers[coord]).__name__ if (coord := _coord(network, odd.where)) else "network"
        raise UnsupportedError(
            f"the {kind} at {odd.where} needs the operation {odd.op}, which cannot be written as source code", hint=ONNX
        )
    return _Translation(network, params, graph, language).code()


_SILENT: Final = frozenset({"reshape", "assign"})
"""Operations without code of their own."""


def _coord(network: Network, where: str) -> Coord | None:
    return next((coord for coord in network.layers if str(coord) == where), None)


class _Translation:
    """The way from one graph to code."""

    def __init__(
        self, network: Network, params: Mapping[str, WeightStore], graph: Graph, language: SourceLanguage
    ) -> None:
        self.network, self.params, self.graph, self.language = network, params, graph, language
        self.views: dict[int, ArrayView] = {}
        self.known: dict[int, Array] = {}
        self.weights: dict[str, Array] = {}
        self.states: dict[str, Shape] = {}
        self._scratch: set[str] = set()
        self._key_names: dict[str, str] = {}
        self._plan = lower(network)
        self._inputs = dict(
            zip(
                identifiers(self._plan.inputs),
                (self._plan.values[i].shape[1:] for i in self._plan.inputs.values()),
                strict=True,
            )
        )
        self._names = layer_names(network)
        self.write = LoopWriter(language, {*self._inputs, *RESERVED, *language.helpers})
        self._uses = Counter(i for node in graph.nodes for i in node.inputs) + Counter(graph.outputs)
        self._after = self._fusible()

    def code(self) -> NetworkCode:
        """Return the code."""
        graph, plan, inputs = self.graph, self._plan, self._inputs
        for i, name in zip(graph.caller_inputs, inputs, strict=True):
            self.views[i] = ArrayView(name, graph.tensors[i].shape)
        self._read_known()
        fused = {id(node) for node, _ in self._after.values()}
        where, assigned = None, list[tuple[str, int]]()
        for node in graph.nodes:
            if all(i in self.known for i in node.inputs) and node.op != "assign":
                self._fold(node)
                continue
            if id(node) in fused:
                continue
            if node.op == "assign":
                value, *condition = node.inputs
                if condition:
                    raise UnsupportedError("a state that is written conditionally cannot be written as source code")
                assigned.append((node.attrs["key"], value))
                self.views[node.outputs[0]] = self._view(value)
                continue
            if node.op == "reshape":
                self.views[node.outputs[0]] = self._view(node.inputs[0]).reshaped(graph.tensors[node.outputs[0]].shape)
                continue
            if node.where != where:
                where = node.where
                self.write.comment(self._describe(where))
            self._node(node)
        outputs = dict(zip(identifiers(plan.outputs), graph.outputs, strict=True))
        results = {name: self._result(name, i) for name, i in outputs.items()}
        self._assign(assigned)
        shapes = {name: graph.tensors[i].shape[1:] for name, i in outputs.items()}
        helpers = [name for name in self.language.helpers if name in self.write.used]
        used = set(re.findall(r"\w+(?=\[)", "\n".join(self.write.lines)))  # tables for gradients have no reader
        weights = {name: values for name, values in self.weights.items() if name in used}
        return NetworkCode(self.write.lines, helpers, inputs, shapes, weights, self.states, results)

    def _read_known(self) -> None:
        computed = {i for node in self.graph.nodes for i in node.outputs}
        for i, tensor in enumerate(self.graph.tensors):
            if i in self.graph.constants:
                self.known[i] = np.asarray(self.graph.constants[i]).reshape(tensor.shape)
            elif tensor.role == "parameter" and tensor.key is not None and i not in computed:
                self.known[i] = self.params[tensor.key].values().reshape(tensor.shape)
            elif tensor.role == "state" and tensor.key is not None and i not in computed:
                name = self._key_name(tensor.key)
                self.states[name] = tensor.shape
                self.views[i] = ArrayView(_state(self.language, name), tensor.shape)

    def _fusible(self) -> dict[int, tuple[Node, int]]:
        """Return the product → the function of one number that alone reads it, and its result."""
        producer = {i: node for node in self.graph.nodes for i in node.outputs}
        pairs: dict[int, tuple[Node, int]] = {}
        for node in self.graph.nodes:
            if node.op != "unary":
                continue
            at, path = node.inputs[0], [node.inputs[0]]
            while at in producer and producer[at].op == "reshape":
                at = producer[at].inputs[0]
                path.append(at)
            if at in producer and producer[at].op == "gemm" and all(self._uses[i] == 1 for i in path):
                pairs[at] = (node, node.outputs[0])
        return pairs

    def _fold(self, node: Node) -> None:
        """Compute a node of constants and weights now."""
        values = [
            self.known[i].astype(np.float64) if self.known[i].dtype.kind == "f" else self.known[i] for i in node.inputs
        ]
        with np.errstate(all="ignore"):
            results = OPS[node.op].run(values, node.attrs)
        self.known |= dict(zip(node.outputs, results, strict=True))

    def _node(self, node: Node) -> None:
        inputs = [self._view(i) for i in node.inputs]
        target, after = node.outputs[0], None
        if target in self._after:
            function, target = self._after[target]
            after = function.attrs
        outputs: list[ArrayView] = []
        for place, i in enumerate(node.outputs):
            shape = self.graph.tensors[i].shape
            if place and not self._uses[i]:
                outputs.append(ArrayView("", shape))
                continue
            layer = self._names.get(node.where, "")
            name = f"{layer}_{_TITLES.get(node.op, node.op)}" if layer else _TITLES.get(node.op, node.op)
            outputs.append(self.write.array(name, shape))
            self.views[i] = outputs[-1]
            self._scratch.add(outputs[-1].name)
        if node.op in ("norm", "pool_max", "edge_attend") and any(view.name for view in outputs[1:]):
            raise UnsupportedError(f"{node.op}, whose second output is read, cannot be written as source code")
        if after is None:
            CODE[node.op](self.write, inputs, node.attrs, outputs)
            return
        gemm_code(self.write, inputs, node.attrs, outputs, after)
        self.views[target] = outputs[0].reshaped(self.graph.tensors[target].shape)

    def _view(self, i: int) -> ArrayView:
        """Return the array of a tensor; a known one becomes a weight of the file."""
        if i not in self.views:
            tensor = self.graph.tensors[i]
            name = (self._key_name(tensor.key) if tensor.key else self._origin(i)).upper()
            values = self.known[i]
            own, number = name, 2
            while own in self.weights and not np.array_equal(self.weights[own], values.reshape(-1)):
                own, number = f"{name}_{number}", number + 1
            self.weights[own] = values.reshape(-1)
            self.views[i] = ArrayView(own, tensor.shape)
        return self.views[i]

    def _origin(self, i: int) -> str:
        """Return a name for a constant: that of the weight which it reshapes, or its layer's."""
        node = next((node for node in self.graph.nodes if i in node.outputs), None)
        if node is None:
            return "constant"
        while node.op == "reshape":
            before = node.inputs[0]
            key = self.graph.tensors[before].key
            if key is not None:
                return self._key_name(key)
            node = next((each for each in self.graph.nodes if before in each.outputs), node)
            if before in self.graph.constants:
                break
        return f"{self._names.get(node.where, 'layer')}_constant"

    def _result(self, name: str, i: int) -> str:
        """Return the name of the array of an output, which is no input, weight or state."""
        view = self._view(i)
        if view.name in self._scratch:
            self._scratch.remove(view.name)  # another output has its own copy
            return view.name
        target = self.write.array(f"{name}_row", view.shape)
        copy_array(self.write, view.shape, (view, view.strides, 0), (target, target.strides, 0))
        return target.name

    def _assign(self, assigned: list[tuple[str, int]]) -> None:
        """Write the states after the row, all at the end: nodes read those before it."""
        copies: list[tuple[ArrayView, ArrayView]] = []
        for key, i in assigned:
            source = self._view(i)
            target = ArrayView(_state(self.language, self._key_name(key)), source.shape)
            self.states.setdefault(self._key_name(key), source.shape)
            if source.name.startswith("state"):
                scratch = self.write.array("before", source.shape)
                copy_array(self.write, source.shape, (source, source.strides, 0), (scratch, scratch.strides, 0))
                source = scratch
            copies.append((source, target))
        if copies:
            self.write.comment("the states for the next row")
        for source, target in copies:
            copy_array(self.write, source.shape, (source, source.strides, 0), (target, target.strides, 0))

    def _key_name(self, key: str) -> str:
        """Return the name of a weight or state, one for each key."""
        if key not in self._key_names:
            path, _, rest = key.partition("/")
            name = plain = identifier(f"{self._names.get(path, path)}_{rest}")
            taken = {each.upper() for each in self._key_names.values()}
            for number in itertools.count(2):
                if name.upper() not in taken:
                    break
                name = f"{plain}_{number}"
            self._key_names[key] = name
        return self._key_names[key]

    def _describe(self, where: str) -> str:
        coord = _coord(self.network, where)
        if coord is None:
            return where or "output"
        return f"{self._names[where]} at {where}: {self.network.layers[coord]!r}"


_TITLES: Final = {
    "gemm": "sum",
    "unary": "out",
    "binary": "out",
    "unfold": "windows",
    "recurrent": "out",
    "norm": "out",
}


def _state(language: SourceLanguage, name: str) -> str:
    return language.state.format(name=name)
