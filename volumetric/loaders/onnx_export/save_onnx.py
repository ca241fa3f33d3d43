"""Write a network as an ONNX model.

Layers emit the operations of the graph; each operation is written as nodes of ONNX. No layer is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from volumetric.base.atomic import atomic_file
from volumetric.base.errors import CheckpointError, ShapeError, UnsupportedError, VolumetricError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.graph.state_spec import StateSpec
from volumetric.graph.unroll_scans import write_out
from volumetric.loaders.onnx_export.onnx_operations import translations, write_nodes
from volumetric.loaders.onnx_export.onnx_weights import write_weight
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter, drop_unused, used_names
from volumetric.loaders.onnx_export.open_graph import OpenGraph, RowsDiffer, RowSize, Sizes, join_graphs
from volumetric.loaders.onnx_export.row_loop import open_rows, row_graph, write_rows
from volumetric.network import INPUT, Network
from volumetric.network.weight_store import WeightStore
from volumetric.run.graph.network_graph import emit_plan
from volumetric.run.lower import lower, mixing_step
from volumetric.run.plan import Plan

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

    from volumetric.analysis.standardise import Standardisation

OPSET: Final = 21
_IR: Final = 10
_ROW_COUNTS: Final = (2, 3, 5, 7, 64, 1000)
"""Numbers of rows whose graphs are compared."""
_LEAST: Final = 3
"""Numbers of rows that a line through sizes needs, so that it can fail."""
_LARGEST: Final = (1 << 31) - (1 << 24)
"""Bytes of a protobuf message, less a margin for the nodes."""
_FEW, _PAGE = 1024, 4096
"""Bytes of a tensor that stays in the file of nodes, and between the starts of tensors in the file of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxReport:
    """What was written.

    Attributes
    ----------
    rows : number of rows of the model; None: any number
    stored : scheme → number of weights written with their codes
    decoded : scheme → number of weights written as float32, because ONNX has no such codes
    """

    rows: int | None
    stored: Mapping[str, int] = field(default_factory=dict)
    decoded: Mapping[str, int] = field(default_factory=dict)


def save_onnx(
    path: str | Path,
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    rows: int | None = None,
    inputs: Standardisation | None = None,
    classes: Sequence[str] = (),
    external: bool | None = None,
) -> OnnxReport:
    """Write a network as an ONNX model, opset 21, for onnxruntime and other runtimes.

    Inputs and outputs have the names of the network's. Their first axis are the rows: samples, or the rows of one
    sequence from its start, if layers read other rows. Weights in int8, int4, uint8, … with scales by row or by group
    keep their codes, and a DequantizeLinear computes their values; float16, bfloat16 and float8 keep their bits. Other
    types are written as float32.

    Parameters
    ----------
    path : file, ending in ``.onnx``
    rows : number of rows that the model takes; None: any number
    inputs : standardisation of inputs, written before the first layer
    classes : names of the output classes, in the metadata of the model
    external : whether the weights are in a second file, ``PATH.data``; None: if they take more than an ONNX file can
        hold, 2 GB

    Returns
    -------
    OnnxReport

    Raises
    ------
    UnsupportedError
        ONNX cannot express a layer, or not for any number of `rows`; the message names it. Or the onnx package is
        missing.
    CheckpointError
        The file cannot be written.
    """
    target = Path(path)
    if target.suffix != ".onnx":
        raise UnsupportedError(f"{target}: the name of an ONNX file must end in .onnx", hint=f"name it {target}.onnx")
    model, report = onnx_model(network, params, rows=rows, inputs=inputs, classes=classes)
    tensors = model.graph.initializer
    if external or (external is None and sum(len(tensor.raw_data) for tensor in tensors) > _LARGEST):
        with atomic_file(f"{target}.data") as handle:
            for tensor in tensors:
                _move_to_file(tensor, handle, f"{target.name}.data")
    with atomic_file(target) as handle:
        handle.write(model.SerializeToString())
    return report


def _move_to_file(tensor: TensorProto, handle: BinaryIO, location: str) -> None:
    """Append the values of a tensor to the file of weights, at a page of its own, unless they are few."""
    from onnx import TensorProto
    from onnx.external_data_helper import set_external_data

    size = len(tensor.raw_data)
    if size < _FEW:
        return
    handle.write(b"\0" * (-handle.tell() % _PAGE))
    set_external_data(tensor, location, handle.tell(), size)
    handle.write(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL


def onnx_model(
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    rows: int | None = None,
    inputs: Standardisation | None = None,
    classes: Sequence[str] = (),
) -> tuple[ModelProto, OnnxReport]:
    """Return the model that `save_onnx` writes; parameters and errors as there."""
    try:
        import onnx
    except ImportError:
        raise UnsupportedError(
            "writing ONNX files needs the onnx package", hint='pip install "volumetric-engine[onnx]"'
        ) from None
    if rows is not None and rows < 1:
        raise ShapeError(f"a model needs 1 row or more, got rows {rows}")
    plan = lower(network)
    graph, states = _open_graph(plan, rows)
    model, report = _Model(plan, graph, states, params).write(inputs, classes)
    try:
        onnx.checker.check_model(_without_weights(model))
    except onnx.checker.ValidationError as error:
        raise CheckpointError(f"the ONNX model is invalid: {error}", hint="please report this network") from None
    return model, replace(report, rows=rows)


def _without_weights(model: ModelProto) -> ModelProto:
    """Return a model with its initialisers as inputs, for the checker, which cannot take more than 2 GB."""
    from onnx import ModelProto, helper

    nodes = model.graph
    weights = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in nodes.initializer]
    graph = helper.make_graph(nodes.node, nodes.name, [*nodes.input, *weights], nodes.output)
    return ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)


class _RowsBuilder(GraphBuilder):
    """Emits attention of the rows of a call as one operation, whose mask does not depend on the number of rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def is_native(self, op: str, inputs: Sequence[int]) -> bool:
        values = [t for t in (self.tensors[i] for i in inputs) if t.role != "parameter"]
        return op == "attend" and all(len(t.shape) <= 2 for t in values)

    def positions(self) -> int:
        return self.derived_input("positions", (self._rows,), "int32")


def _emit(plan: Plan, rows: int) -> Graph:
    """Return the graph of a plan for a number of rows, in operations that have translations."""
    work = _RowsBuilder(rows)
    values = {name: plan.values[i] for name, i in plan.inputs.items()}
    inputs = {name: work.input(name, (rows, *value.shape[1:]), value.dtype) for name, value in values.items()}
    graph = work.finish([*emit_plan(work, plan, inputs).outputs.values()])
    return _in_known_operations(graph)


def _in_known_operations(graph: Graph) -> Graph:
    """Write out operations without a translation, in bodies of loops too."""
    table = translations()
    graph = write_out(graph, lambda node: node.op in table)
    nodes = [
        replace(node, attrs={**node.attrs, "body": _in_known_operations(node.attrs["body"])})
        if isinstance(node.attrs.get("body"), Graph)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))


def _open_graph(plan: Plan, rows: int | None) -> tuple[OpenGraph, dict[str, StateSpec] | None]:
    """Return the graph of all rows; or, where it is another one for each number of rows, that of one row and states."""
    if plan.max_rows is None:
        if rows is not None:
            return join_graphs([_emit(plan, rows)], [rows]), None
        graphs: list[Graph] = []
        for count in _ROW_COUNTS:
            try:
                graphs.append(_emit(plan, count))
            except VolumetricError:
                if len(graphs) < _LEAST:  # not because it is too long, such as for a table of positions
                    raise
                break
        try:
            return join_graphs(graphs, _ROW_COUNTS[: len(graphs)]), None
        except RowsDiffer as differ:
            where = differ.where
    else:
        where = next(step.where for step in plan.steps if step.op == "recall")
    one = row_graph(plan)
    if one is not None:
        graph, states = one
        return join_graphs([_in_known_operations(graph)], [1]), states
    layer = next((step.op for step in plan.steps if step.where == where), "the layer")
    raise UnsupportedError(
        f"ONNX cannot express {layer} at {where} for any number of rows",
        hint="give the number of rows that the model takes: rows=32 (--rows 32)",
    )


class _Model:
    """Writes the parts of a model around its nodes: inputs, weights, outputs, metadata."""

    def __init__(
        self, plan: Plan, graph: OpenGraph, states: dict[str, StateSpec] | None, params: Mapping[str, WeightStore]
    ) -> None:
        self._plan, self._graph, self._states, self._params = plan, graph, states, params
        self._sequence = mixing_step(plan) is not None
        self._stored: dict[str, int] = {}
        self._decoded: dict[str, int] = {}

    def write(self, inputs: Standardisation | None, classes: Sequence[str]) -> tuple[ModelProto, OnnxReport]:
        from onnx import helper

        graph, open_graph = self._graph.graph, self._graph
        names = dict(zip(graph.caller_inputs, self._plan.inputs, strict=True))
        writer = OnnxWriter(INPUT if INPUT in self._plan.inputs else next(iter(self._plan.inputs)))
        value_infos = [self._info(name, i) for i, name in names.items()]
        if inputs is not None:
            first = next(i for i, name in names.items() if name == INPUT)
            names[first] = _standardised(writer, names[first], inputs, self._shape(first))
        for i in graph.derived:
            if i in graph.inputs and i in open_graph.shapes:
                rows = open_graph.shapes[i][0]
                fixed = isinstance(rows, int)
                names[i] = writer.constant(np.arange(rows, dtype=np.int32)) if fixed else writer.positions()
        computed = {i for node in graph.nodes for i in node.outputs}
        for i, tensor in enumerate(graph.tensors):
            if tensor.role == "parameter" and tensor.key and i in open_graph.shapes and i not in computed:
                names[i] = self._weight(writer, tensor.key)
        if self._states is None:
            write_nodes(writer, open_graph, names)
        else:
            names |= write_rows(writer, open_graph, self._states, names)
        writer.where = ""
        results: list[Any] = []
        for name, i in zip(self._plan.outputs, graph.outputs, strict=True):
            writer.nodes.append(helper.make_node("Identity", [names[i]], [name], name=f"output/{name}"))
            results.append(self._info(name, i))
        nodes = drop_unused(writer.nodes, [*self._plan.outputs])
        used = used_names(nodes)
        tensors = [tensor for name, tensor in writer.initializers.items() if name in used]
        onnx_graph = helper.make_graph(nodes, "network", value_infos, results, tensors)
        model = helper.make_model(
            onnx_graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR,
            producer_name="volumetric",
        )
        if classes:
            helper.set_model_props(model, {"classes": "\n".join(classes)})
        return model, OnnxReport(rows=None, stored=self._stored, decoded=self._decoded)

    def _info(self, name: str, tensor: int) -> Any:
        from onnx import TensorProto, helper

        kind = TensorProto.INT32 if self._graph.graph.tensors[tensor].dtype == "int32" else TensorProto.FLOAT
        shape = [self._axis(size) for size in self._shape(tensor)]
        return helper.make_tensor_value_info(name, kind, shape)

    def _shape(self, tensor: int) -> Sizes:
        """Return the shape of an input or output."""
        return self._graph.shapes[tensor] if self._states is None else open_rows(self._graph, tensor)

    def _axis(self, size: int | RowSize) -> int | str:
        if isinstance(size, int):
            return size
        name = "T" if self._sequence else "N"
        return name if size == RowSize(0, 1) else f"{size.rate}*{name} + {size.base}"

    def _weight(self, writer: OnnxWriter, key: str) -> str:
        store = self._params[key]
        writer.where = key
        name, stored = write_weight(writer, key, store)
        counts = self._stored if stored else self._decoded
        scheme = str(store.scheme)
        counts[scheme] = counts.get(scheme, 0) + int(np.prod(store.shape))
        writer.parameter_shapes[name] = tuple(store.shape)
        return name


def _standardised(writer: OnnxWriter, x: str, of: Standardisation, shape: Sizes) -> str:
    """Write ``(x − mean) / deviation`` in float64, as `Standardisation.apply` does."""
    count = len(of.mean)
    row = shape[1:] if shape[-1] != count else (count,)
    mean, deviation = (np.array(part).reshape(row) for part in (of.mean, of.deviation))  # pyright: ignore[reportArgumentType]
    wide = writer.node("Sub", writer.cast(x, "DOUBLE"), writer.constant(mean))
    return writer.cast(writer.node("Div", wide, writer.constant(deviation)), "FLOAT")
