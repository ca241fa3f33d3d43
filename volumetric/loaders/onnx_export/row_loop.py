"""A network whose rows are computed one after the other: the graph of one row, as the body of a loop with states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volumetric.base.errors import UnsupportedError, VolumetricError
from volumetric.graph.binding import bind
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.graph.state_spec import StateSpec, bounded_states
from volumetric.layers import LayerSpec
from volumetric.loaders.onnx_export.onnx_loops import LoopInputs, write_loop
from volumetric.loaders.onnx_export.onnx_operations import write_nodes
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import OpenGraph, RowSize
from volumetric.run.graph.network_graph import EmitOptions, emit_plan
from volumetric.run.lower import looks_ahead
from volumetric.run.plan import DELAYS, Plan


def row_graph(plan: Plan) -> tuple[Graph, dict[str, StateSpec]] | None:
    """Return the graph of one row that continues from states, and the states by key; None: there is no such graph.

    A layer that reads later rows, or all rows of a growing memory, has none.
    """
    states: dict[str, StateSpec] = {}
    for step in plan.steps:
        spec = step.attrs.get("spec")
        if isinstance(spec, LayerSpec) and spec.contextual and not spec.takes_resets:
            return None
        if step.op not in DELAYS and looks_ahead(plan, step):
            return None
        try:
            own = bounded_states((plan.states[key] for key in step.states.values()), step.where)
        except UnsupportedError:
            return None
        states |= {f"{step.where}/{state.name}": state for state in own}
    # A link with a delay emits sizes for an open number of rows.
    rows = -1 if any(step.op in DELAYS for step in plan.steps) else 1
    work = GraphBuilder()
    values = {name: plan.values[i] for name, i in plan.inputs.items()}
    inputs = {name: work.input(name, (rows, *value.shape[1:]), value.dtype) for name, value in values.items()}
    try:
        outputs = emit_plan(work, plan, inputs, EmitOptions(resumes=True)).outputs
        graph = work.finish([*outputs.values()])
    except VolumetricError:
        return None
    return None if graph.derived else (bind(graph, 1), states)


def write_rows(
    writer: OnnxWriter, of: OpenGraph, states: dict[str, StateSpec], names: dict[int, str]
) -> dict[int, str]:
    """Write a loop over the rows; return output of the graph → its name.

    Parameters
    ----------
    of : the graph of one row
    names : inputs of the network, ``[n, …]``, and parameters, by tensor
    """
    graph = of.graph
    computed = {i: node for node in graph.nodes for i in node.outputs}
    keyed = [i for i in of.shapes if graph.tensors[i].role == "state"]
    first = {graph.tensors[i].key: i for i in keyed if i not in computed}
    last = {graph.tensors[i].key: i for i in keyed if i in computed}
    keys = [key for key in last if key is not None]
    xs = [i for i in graph.inputs if i in names]
    starts = [writer.constant(np.full(graph.tensors[last[key]].shape, states[key].start, np.float32)) for key in keys]

    def step(inner: OnnxWriter, before: Sequence[str], now: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        inside = {i: name for i, name in names.items() if i not in xs}
        inside |= {i: inner.node("Unsqueeze", name, inner.ints(0)) for i, name in zip(xs, now, strict=True)}
        inside |= {first[key]: name for key, name in zip(keys, before, strict=True) if key in first}
        write_nodes(inner, of, inside)
        ys = [inner.node("Squeeze", inside[i], inner.ints(0)) for i in graph.outputs]
        return [inside[last[key]] for key in keys], ys

    whole = [graph.tensors[i].dtype == "int32" for i in xs]
    inputs = LoopInputs(states=starts, xs=[names[i] for i in xs], whole=whole)
    return dict(zip(graph.outputs, write_loop(writer, inputs, step)[1], strict=True))


def open_rows(graph: OpenGraph, tensor: int) -> tuple[RowSize | int, ...]:
    """Return the shape of an input or output of the network, from that of one row."""
    return RowSize(0, 1), *graph.shapes[tensor][1:]
