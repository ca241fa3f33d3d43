"""Emits an ONNX graph at fixed shapes into a graph of this engine.

What is known while the graph is built, such as arithmetic on shapes, is computed in NumPy at once; the rest becomes
nodes. So one ONNX graph gives one graph of ours for each set of input shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from volumetric.base.errors import CheckpointError, UnsupportedError, VolumetricError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.loaders.onnx_import.fold_known import FOLDS
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_declaration import OnnxParameter, OperatorGraph, is_floating
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, known_value
from volumetric.loaders.onnx_import.operators.operator_table import operator_rules

MOST_KNOWN = 4096
"""An input of at most this many elements may be known while the graph is built, if the graph depends on them."""
_MOST_FOLDED = 1 << 24
"""Elements of the largest result that is computed while the graph is built."""

Parameters = Callable[[OnnxParameter], OnnxValue]


def emit_onnx(
    work: GraphBuilder,
    graph: OperatorGraph,
    inputs: Sequence[OnnxValue],
    parameters: Parameters,
    outer: Mapping[str, OnnxValue] | None = None,
    *,
    switches: frozenset[str] = frozenset(),
) -> list[OnnxValue]:
    """Emit `graph` and return its outputs.

    Parameters
    ----------
    inputs : a value for each input of the graph
    parameters : returns the value of a parameter
    outer : values of the graphs around it, by name
    switches : see `NodeCall`

    Raises
    ------
    InputsNeededError : the elements of some inputs must be known
    UnsupportedError : an operator, or a case of one, cannot be expressed
    ShapeError : the shapes do not fit
    """
    values = dict(outer or {})
    values.update((c.name, known_value(c.value.array())) for c in graph.constants)
    values.update((p.name, parameters(p)) for p in graph.parameters)
    values.update(zip((i.name for i in graph.inputs), inputs, strict=True))

    def run_graph(inner: OperatorGraph, inner_inputs: Sequence[OnnxValue]) -> list[OnnxValue]:
        return emit_onnx(work, inner, inner_inputs, parameters, values, switches=switches)

    for node in graph.nodes:
        attributes = {a.name: a.value for a in node.attributes}
        call = NodeCall(
            work=work, node=node, opset=graph.opset, run_graph=run_graph, attributes=attributes, switches=switches
        )
        arguments = [_look_up(values, name, call) for name in node.inputs]
        while arguments and arguments[-1] is None:
            arguments.pop()
        outputs = _emit_node(call, arguments)
        sources = frozenset().union(*(v.sources for v in arguments if v is not None))
        for name, value in zip(node.outputs, outputs, strict=False):
            if name:
                values[name] = replace(value, sources=value.sources | sources) if value.array is None else value
    missing = [name for name, _ in graph.outputs if name not in values]
    if missing:
        raise CheckpointError(f"no node of the ONNX graph computes its output {missing[0]!r}")
    return [values[name] for name, _ in graph.outputs]


def _look_up(values: Mapping[str, OnnxValue], name: str, call: NodeCall) -> OnnxValue | None:
    if not name:
        return None
    if name not in values:
        raise CheckpointError(f"{call.label} reads {name!r}, which nothing before it computes")
    return values[name]


def _emit_node(call: NodeCall, arguments: Sequence[OnnxValue | None]) -> Sequence[OnnxValue]:
    op = call.node.op
    rule = operator_rules().get(op)
    try:
        if op in FOLDS and all(v is None or v.array is not None for v in arguments):
            return _fold(call, arguments)
        if rule is None and op in FOLDS:  # such as Range: only known inputs give a shape
            for value in arguments:
                if value is not None:
                    call.array(value, "its result")
        if rule is None:
            raise UnsupportedError(
                f"the ONNX operator {op} is not supported", hint="docs/onnx_read.md lists what can be read"
            )
        if arguments and all(v is None or v.array is not None for v in arguments) and not call.node.graphs():
            return _fold_by_graph(call, arguments)
        with call.work.at(call.node.name or op):
            outputs = rule.emit(call, *arguments)
    except VolumetricError:
        raise
    except (TypeError, IndexError, KeyError, ValueError, AttributeError, OverflowError, ArithmeticError) as error:
        shapes = ", ".join("-" if v is None else f"{v.dtype} {list(v.shape)}" for v in arguments)
        raise CheckpointError(f"{call.label} cannot be read with inputs {shapes}: {error}") from error
    return [outputs] if isinstance(outputs, OnnxValue) else outputs


def _fold(call: NodeCall, arguments: Sequence[OnnxValue | None]) -> Sequence[OnnxValue]:
    """Compute a node in NumPy."""
    with np.errstate(all="ignore"):
        arrays = FOLDS[call.node.op](call, *(None if v is None else v.array for v in arguments))
    results = list(map(known_value, arrays if isinstance(arrays, list) else [arrays]))
    for value in results:
        if value.size > _MOST_FOLDED and any(np.asarray(value.array).strides):
            raise UnsupportedError(f"{call.label}: a constant of shape {list(value.shape)} is too large")
    return results


def _fold_by_graph(call: NodeCall, arguments: Sequence[OnnxValue | None]) -> Sequence[OnnxValue]:
    """Compute a node of known inputs by the graph that it would become, in float64."""
    work = GraphBuilder()
    rule = operator_rules()[call.node.op]
    outputs = rule.emit(replace(call, work=work), *arguments)
    outputs = [outputs] if isinstance(outputs, OnnxValue) else list(outputs)
    open_outputs = [value.tensor for value in outputs if value.array is None and value.tensor is not None]
    arrays = iter(interpret(work.finish(open_outputs), [], {}, np.float64) if open_outputs else [])
    results: list[OnnxValue] = []
    for value in outputs:
        if value.array is None:
            array = next(arrays).reshape(value.shape)
            array = array if is_floating(value.dtype) or value.dtype.kind == "b" else np.rint(array)
            value = known_value(array.astype(value.dtype))
        results.append(value)
    return results
