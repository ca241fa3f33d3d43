"""A network as an ONNX model in memory: nodes, weights, inputs, outputs and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError, ShapeError, UnsupportedError
from volumetric.base.notebook_html import ShowsFields
from volumetric.graph.state_spec import StateSpec
from volumetric.loaders.onnx_export.onnx_operations import write_nodes
from volumetric.loaders.onnx_export.onnx_weights import write_weight
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter, drop_unused, used_names
from volumetric.loaders.onnx_export.open_graph import OpenGraph, RowSize, Sizes
from volumetric.loaders.onnx_export.plan_graphs import open_graph_of
from volumetric.loaders.onnx_export.row_loop import open_rows, write_rows
from volumetric.network import INPUT, Network
from volumetric.network.weight_store import WeightStore
from volumetric.run.lower import lower, mixing_step
from volumetric.run.plan import Plan

if TYPE_CHECKING:
    from onnx import ModelProto

    from volumetric.analysis.standardise import Standardisation

OPSET: Final = 21
_IR: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxReport(ShowsFields):
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
    graph, states = open_graph_of(plan, rows)
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
        """Return the model, and what became of its weights."""
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
    row = tuple(size for size in shape[1:] if isinstance(size, int)) if shape[-1] != count else (count,)
    mean, deviation = (np.array(part).reshape(row) for part in (of.mean, of.deviation))
    wide = writer.node("Sub", writer.cast(x, "DOUBLE"), writer.constant(mean))
    return writer.cast(writer.node("Div", wide, writer.constant(deviation)), "FLOAT")
