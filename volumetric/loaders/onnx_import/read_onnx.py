"""Reads an ONNX file: its graph as plain data, and its arrays. This module alone parses ONNX files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.loaders.onnx_import.fold_known import FOLDS
from volumetric.loaders.onnx_import.onnx_arrays import array_of, decoded_array
from volumetric.loaders.onnx_import.onnx_declaration import (
    NodeAttribute,
    OnnxConstant,
    OnnxInput,
    OnnxNode,
    OnnxParameter,
    OperatorGraph,
    is_floating,
    pack_array,
)
from volumetric.loaders.onnx_import.onnx_types import type_name
from volumetric.loaders.onnx_import.operators.operator_table import operator_rules

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

OLDEST_OPSET = 7
"""Older versions are converted: their operators broadcast by attributes."""
_EXPANSIONS = 3
"""Times that operators are written out: the body of one may contain another."""
_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOnnx:
    """What a file contains.

    Attributes
    ----------
    graph : the graph
    arrays : name of a parameter → its array
    producer : program that wrote the file, with its version
    operators : operator → how often it occurs
    metadata : the file's own texts
    """

    graph: OperatorGraph
    arrays: Mapping[str, Array]
    producer: str
    operators: Mapping[str, int]
    metadata: Mapping[str, str]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the output classes: the entry ``classes`` of the metadata, one a line, as `save_onnx` writes it."""
        return tuple(filter(None, self.metadata.get("classes", "").split("\n")))


def read_onnx(path: Path) -> ReadOnnx:
    """Read a file, with the files beside it that hold its arrays.

    Raises
    ------
    CheckpointError : the file is damaged or no ONNX, or refers to files outside its directory
    UnsupportedError : operators are not supported; all of them are named. Or the package onnx is missing
    """
    onnx = import_onnx()
    try:
        content = path.read_bytes()
        model = onnx.load_model_from_string(content)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    except Exception as error:  # protobuf's errors have no common base
        raise CheckpointError(f"{path} is no ONNX file, or is damaged: {str(error).splitlines()[0]}") from None
    try:
        return read_model(model, path.parent)
    except (CheckpointError, UnsupportedError) as error:
        raise type(error)(f"{path.name}: {error}", hint=error.hint) from None


def import_onnx() -> Any:
    """Return the module `onnx`. Raises `UnsupportedError` if it is not installed."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(
            "ONNX files need the package onnx", hint='pip install "volumetric-engine[onnx]"'
        ) from None
    return onnx


def read_model(model: ModelProto, directory: Path) -> ReadOnnx:
    """Read a parsed model whose external arrays are in `directory`. Raises as `read_onnx`."""
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise CheckpointError("it is no ONNX model: it has no graph")
    model = _prepared(model)
    counts = _count_operators(model.graph)
    unknown = {op: n for op, n in counts.items() if not _is_supported(op)}
    if unknown:
        listed = ", ".join(f"{op} ({n})" for op, n in sorted(unknown.items()))
        raise UnsupportedError(
            f"{len(unknown)} of its {len(counts)} operators cannot be read: {listed}",
            hint="docs/onnx_read.md lists all that can",
        )
    versions = [o.version for o in model.opset_import if o.domain in _STANDARD]
    reader = _GraphReader(directory, versions[0] if versions else 1)
    graph = reader.read(model.graph)
    return ReadOnnx(
        graph=graph,
        arrays=reader.arrays,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        operators=counts,
        metadata={entry.key: entry.value for entry in model.metadata_props},
    )


def _is_supported(op: str) -> bool:
    return op in operator_rules() or op in FOLDS


def operator_name(node: NodeProto) -> str:
    """Return the name of an operator, with its domain unless it is the standard one."""
    return node.op_type if node.domain in _STANDARD else f"{node.domain}:{node.op_type}"


def _count_operators(graph: GraphProto) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in graph.node:
        counts[operator_name(node)] += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                counts.update(_count_operators(attribute.g))
    return counts


def _prepared(model: ModelProto) -> ModelProto:
    """Return a model of a version that is supported, with its functions, and those of ONNX if need be, inlined."""
    from onnx import inliner, version_converter

    try:
        versions = [o.version for o in model.opset_import if o.domain in _STANDARD]
        if versions and versions[0] < OLDEST_OPSET:
            model = version_converter.convert_version(model, OLDEST_OPSET)
        if model.functions:
            model = inliner.inline_local_functions(model)
        for _ in range(_EXPANSIONS):
            expanded = _expanded(model)
            if expanded is None:
                break
            model = expanded
    except (CheckpointError, UnsupportedError):
        raise
    except Exception as error:  # of several C++ libraries
        raise CheckpointError(f"the ONNX graph is inconsistent: {str(error).splitlines()[0]}") from None
    return model


def _expanded(model: ModelProto) -> ModelProto | None:
    """Return a model with operators that are not supported written out by simpler ones; None if there are none."""
    from onnx import defs, inliner

    version = max((o.version for o in model.opset_import if o.domain in _STANDARD), default=1)
    wanted = [op for op in _count_operators(model.graph) if not _is_supported(op) and ":" not in op]
    names = [("", op) for op in wanted if defs.has(op, version) and _has_body(defs.get_schema(op, version))]
    if not names:
        return None
    try:
        return inliner.inline_selected_functions(model, names, False, True)
    except Exception:  # the types of its inputs are unknown: the operator is refused by name
        return None


def _has_body(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


class _GraphReader:
    """Turns graphs into declarations, and collects their arrays."""

    def __init__(self, directory: Path, opset: int) -> None:
        self.directory, self.opset = directory, opset
        self.arrays: dict[str, Array] = {}

    def read(self, graph: GraphProto, static_outside: frozenset[str] = frozenset()) -> OperatorGraph:
        """Read a graph, or one inside a node; `static_outside` are names whose elements the nodes around need."""
        tensors: dict[str, Array] = {t.name: self._load(t) for t in graph.initializer}
        initial = frozenset(tensors)
        nodes: list[NodeProto] = []
        for node in graph.node:
            value = _constant_tensor(node)
            if value is not None:
                tensors[node.output[0]] = self._load(value)
            else:
                nodes.append(node)
        static = self._static_names(nodes, tensors) | static_outside
        tensors = self._decoded(nodes, tensors, static, {o.name for o in graph.output})
        parameters, constants = list[OnnxParameter](), list[OnnxConstant]()
        for name, value in tensors.items():
            if name in static or value.size < 2 or not _is_numeric(value):
                constants.append(OnnxConstant(name=name, value=pack_array(value)))
                continue
            if name in self.arrays:
                raise CheckpointError(f"two arrays of the ONNX graph are called {name!r}")
            self.arrays[name] = value
            parameters.append(OnnxParameter(name=name, shape=value.shape, dtype=value.dtype.name))
        declared = tuple(self._node(node, static) for node in nodes if node.op_type)
        inputs = tuple(self._input(i) for i in graph.input if i.name not in initial)
        return OperatorGraph(
            nodes=declared,
            inputs=inputs,
            outputs=tuple((o.name, _declared_type(o)) for o in graph.output),
            parameters=tuple(parameters),
            constants=tuple(constants),
            opset=self.opset,
        )

    def _static_names(self, nodes: Iterable[NodeProto], tensors: Mapping[str, Array]) -> frozenset[str]:
        """Return the arrays that decide shapes: the nodes that need known elements, and all before them."""
        rules = operator_rules()
        makers = {name: node for node in nodes for name in node.output}
        waiting: list[str] = []
        for node in nodes:
            rule = rules.get(operator_name(node))
            places = rule.static if rule is not None else range(len(node.input))
            waiting += [node.input[i] for i in places if i < len(node.input)]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting += self._static_inside(attribute.g)
        static: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in static:
                continue
            static.add(name)
            if name in makers and makers[name].op_type not in ("Shape", "Size"):
                waiting.extend(makers[name].input)
        return frozenset(static)

    def _static_inside(self, graph: GraphProto) -> list[str]:
        """Return names that a graph inside a node needs known; those of its own are harmless."""
        return list(self._static_names(list(graph.node), {}))

    def _decoded(
        self, nodes: list[NodeProto], tensors: dict[str, Array], static: frozenset[str], outputs: set[str]
    ) -> dict[str, Array]:
        """Return arrays with those that only type casts and DequantizeLinear read decoded; drops these nodes."""
        for i, node in enumerate(nodes):
            if node.op_type not in ("DequantizeLinear", "Cast") or not node.output or node.output[0] in static:
                continue
            if not all(name in tensors for name in node.input if name):
                continue
            value = decoded_array(node, [tensors[name] for name in node.input if name])
            if value is not None:
                tensors[node.output[0]] = value
                nodes[i] = type(node)()
        read = outputs.union(*(_names_read(node) for node in nodes))
        return {name: value for name, value in tensors.items() if name in read}

    def _load(self, tensor: TensorProto) -> Array:
        return array_of(tensor, self.directory)

    def _input(self, value: ValueInfoProto) -> OnnxInput:
        kind = value.type.tensor_type
        if not value.type.WhichOneof("value"):  # of a graph inside a node
            return OnnxInput(name=value.name, dtype="")
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"the input {value.name!r} is no tensor but a sequence, map or optional value")
        shape = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?" for d in kind.shape.dim
        )
        dtype = type_name(kind.elem_type) if kind.elem_type else ""
        return OnnxInput(name=value.name, dtype=dtype, shape=shape if kind.HasField("shape") else None)

    def _node(self, node: NodeProto, static: frozenset[str]) -> OnnxNode:
        return OnnxNode(
            op=operator_name(node),
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attributes=tuple(self._attribute(a, node, static) for a in node.attribute),
            name=re.sub(r"[^\w./:-]", "_", node.name),
        )

    def _attribute(self, attribute: AttributeProto, node: NodeProto, static: frozenset[str]) -> NodeAttribute:
        from onnx import AttributeProto as Kinds

        name, kind = attribute.name, attribute.type
        if kind == Kinds.INT:
            return NodeAttribute(name=name, number=attribute.i)
        if kind == Kinds.FLOAT:
            return NodeAttribute(name=name, number=attribute.f)
        if kind == Kinds.STRING:
            return NodeAttribute(name=name, text=attribute.s.decode("utf-8", "replace"))
        if kind == Kinds.INTS:
            return NodeAttribute(name=name, numbers=tuple(attribute.ints))
        if kind == Kinds.FLOATS:
            return NodeAttribute(name=name, numbers=tuple(attribute.floats))
        if kind == Kinds.STRINGS:
            return NodeAttribute(name=name, texts=tuple(s.decode("utf-8", "replace") for s in attribute.strings))
        if kind == Kinds.TENSOR:
            return NodeAttribute(name=name, array=pack_array(self._load(attribute.t)))
        if kind == Kinds.GRAPH:
            return NodeAttribute(name=name, graph=self.read(attribute.g, static))
        raise UnsupportedError(f"{operator_name(node)} has an attribute {name!r} of a kind that is not supported")


def _constant_tensor(node: NodeProto) -> TensorProto | None:
    """Return the tensor of a `Constant`, None for other nodes and other constants."""
    if node.op_type != "Constant" or node.domain not in _STANDARD or len(node.output) != 1:
        return None
    return next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)


def _names_read(node: NodeProto) -> Iterable[str]:
    """Yield the names that a node and the graphs inside it read."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _names_read(inner)
            yield from (o.name for o in attribute.g.output)


def _is_numeric(value: Array) -> bool:
    """Whether an array can be a parameter: numbers with fractions, or codes of at most 8 bits."""
    return is_floating(value.dtype) or value.dtype.name in ("int8", "uint8", "int4", "uint4")


def _declared_type(value: ValueInfoProto) -> str:
    from volumetric.loaders.onnx_import.onnx_types import TYPE_NAMES

    return TYPE_NAMES.get(value.type.tensor_type.elem_type, "")
