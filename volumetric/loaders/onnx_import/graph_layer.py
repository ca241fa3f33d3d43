"""The layer `onnx_graph`: a whole ONNX graph as one layer of a network."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import LayerSpec, ParamSpec, layer, show_shape
from volumetric.loaders.onnx_import.emit_onnx import emit_onnx
from volumetric.loaders.onnx_import.onnx_declaration import OnnxParameter, OperatorGraph, is_floating, onnx_dtype
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, TooManyStepsError, tensor_shape

PROBE = 8191
"""Rows with which a graph for any number of rows is emitted first: a prime that is no size of a model."""


@layer("onnx_graph")
class OnnxGraph(LayerSpec):
    """A graph of ONNX operators, ``[N, …]`` → ``[N, …]``.

    ::

        v[output of node] = operator(v[inputs of node])    for each node of the graph, in order
        v[input of graph] = x,   y = v[output of graph]

    Every operator becomes nodes of the engine's graph, with gradients, so the layer trains, quantises and is saved as
    others are. The arrays of numbers with fractions in the file are the parameters. A graph with one input takes it as
    it is, ``[N, *shape]``. The inputs of another are the columns of one row, in order; `ports` names them. The same
    holds for outputs.

    Attributes
    ----------
    graph : the operators
    shapes : shape of each input without its first axis, the rows
    results : shape of each output without its first axis
    """

    graph: OperatorGraph
    shapes: tuple[Shape, ...]
    results: tuple[Shape, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        if len(self.shapes) != len(self.graph.inputs) or len(self.results) != len(self.graph.outputs):
            raise SpecError(
                f"onnx_graph: {len(self.shapes)} shapes and {len(self.results)} results for "
                f"{len(self.graph.inputs)} inputs and {len(self.graph.outputs)} outputs"
            )

    def params(self) -> tuple[ParamSpec, ...]:
        return tuple(
            ParamSpec(name=p.name, shape=p.shape, packable=len(p.shape) > 1)
            for p in self.graph.all_parameters()
            if is_floating(onnx_dtype(p.dtype))
        )

    def buffers(self) -> tuple[ParamSpec, ...]:
        return tuple(
            ParamSpec(name=p.name, shape=p.shape, init="zeros", packable=False, buffer=True)
            for p in self.graph.all_parameters()
            if not is_floating(onnx_dtype(p.dtype))
        )

    def ports(self, which: Literal["inputs", "outputs"]) -> Mapping[str, tuple[int, int]]:
        shapes = self.shapes if which == "inputs" else self.results
        if len(shapes) == 1:
            return {}
        names = [i.name for i in self.graph.inputs] if which == "inputs" else [name for name, _ in self.graph.outputs]
        columns: dict[str, tuple[int, int]] = {}
        start = 0
        for name, shape in zip(names, shapes, strict=True):
            columns[name] = (start, start + prod(shape))
            start += prod(shape)
        return columns

    def output_shape(self, *inputs: Shape) -> Shape:
        wanted = self.shapes[0] if len(self.shapes) == 1 else (sum(map(prod, self.shapes)),)
        if tuple(inputs[0][1:]) != tuple(wanted):
            raise ShapeError(f"onnx_graph expects {show_shape((ROWS, *wanted))}, got shape {show_shape(inputs[0])}")
        results = self.results[0] if len(self.results) == 1 else (sum(map(prod, self.results)),)
        return (inputs[0][0], *results)

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        params = {p.name: scope.param(p.name, p.shape) for p in self.params()} | scope.buffers(self)
        shape = work.shape(x)
        if shape[0] >= 0:
            return self._emit(work, x, params)
        probe = GraphBuilder()
        start = probe.input("x", (PROBE * -shape[0], *shape[1:]))
        inside = {name: probe.input(name, work.shape(i)) for name, i in params.items()}
        try:
            graph = probe.finish([self._emit(probe, start, inside)])
        except TooManyStepsError:
            raise _loop_over_rows(scope.work.where) from None
        return _with_open_rows(work, graph, {start: x, **{i: params[name] for name, i in inside.items()}})

    def _emit(self, work: GraphBuilder, x: int, params: Mapping[str, int]) -> int:
        """Emit the graph for a number of rows."""
        rows = work.shape(x)[0]
        values: list[OnnxValue] = []
        places = self.ports("inputs")
        for declared, shape in zip(self.graph.inputs, self.shapes, strict=True):
            part = x if not places else work.part(x, 1, *places[declared.name])
            dtype = onnx_dtype(declared.dtype or "float32")
            tensor = work.reshape(part, (rows, *shape))
            values.append(OnnxValue(dtype=dtype, shape=(rows, *shape), tensor=tensor))

        def parameter(of: OnnxParameter) -> OnnxValue:
            tensor = work.reshape(params[of.name], tensor_shape(of.shape))
            return OnnxValue(dtype=onnx_dtype(of.dtype), shape=of.shape, tensor=tensor)

        outputs = emit_onnx(work, self.graph, values, parameter)
        flat: list[int] = []
        for (name, _), value, shape in zip(self.graph.outputs, outputs, self.results, strict=True):
            if value.tensor is None or value.shape != (rows, *shape):
                raise ShapeError(
                    f"the output {name!r} of the ONNX graph is {list(value.shape)}, expected {[rows, *shape]}",
                    hint="its first axis must be that of the inputs",
                )
            flat.append(value.tensor)
        if len(flat) == 1:
            return flat[0]
        return work.concat([work.reshape(i, (rows, prod(s))) for i, s in zip(flat, self.results, strict=True)], 1)


def _loop_over_rows(where: str) -> UnsupportedError:
    return UnsupportedError(
        f"{where}: the ONNX graph has a loop, as of an LSTM or a Scan, whose steps must be known when it is compiled, "
        "and this layer takes any number of rows",
        hint="run the .onnx file itself, with volumetric run MODEL.onnx or volumetric.load, which compile it for the "
        "length of each input",
    )


def _with_open_rows(work: GraphBuilder, graph: Graph, tensors: dict[int, int]) -> int:
    """Emit a graph for `PROBE` rows again, for any number of rows."""

    def opened(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(opened, value))
        whole = isinstance(value, int) and not isinstance(value, bool)
        return -(value // PROBE) if whole and value and value % PROBE == 0 else value

    for i, value in graph.constants.items():
        if any(n and n % PROBE == 0 for n in value.shape):
            raise UnsupportedError("the ONNX graph has a constant for each row, so it cannot take any number of rows")
        tensors[i] = work.constant(value, graph.tensors[i].name)
    for node in graph.nodes:
        if any(isinstance(value, Graph) for value in node.attrs.values()):
            raise _loop_over_rows(node.where)
        attrs = {name: opened(value) for name, value in node.attrs.items()}
        with work.at(node.where or work.where, mixes=None):
            outputs = work.emit(node.op, [tensors[i] for i in node.inputs], **attrs)
        tensors.update(zip(node.outputs, outputs, strict=True))
    return tensors[graph.outputs[0]]
