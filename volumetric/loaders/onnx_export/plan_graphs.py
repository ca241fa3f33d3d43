"""The graphs of a plan in operations that have translations: for any number of rows, or of one row with states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from volumetric.base.errors import UnsupportedError, VolumetricError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.ops import Graph
from volumetric.graph.state_spec import StateSpec
from volumetric.graph.unroll_scans import write_out
from volumetric.loaders.onnx_export.onnx_operations import translations
from volumetric.loaders.onnx_export.open_graph import OpenGraph, RowsDifferError, join_graphs
from volumetric.loaders.onnx_export.row_loop import row_graph
from volumetric.run.graph.network_graph import emit_plan
from volumetric.run.plan import Plan

_ROW_COUNTS: Final = (2, 3, 5, 7, 64, 1000)
"""Numbers of rows whose graphs are compared."""
_LEAST: Final = 3
"""Numbers of rows that a line through sizes needs, so that it can fail."""


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


def open_graph_of(plan: Plan, rows: int | None) -> tuple[OpenGraph, dict[str, StateSpec] | None]:
    """Return the graph of all rows; or, where it is another one for each number of rows, that of one row and states."""
    if plan.max_rows is None:
        if rows is not None:
            return join_graphs([_emit(plan, rows)], [rows]), None
        try:
            return _graph_of_all_rows(plan), None
        except RowsDifferError as differ:
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


def _graph_of_all_rows(plan: Plan) -> OpenGraph:
    """Return the graph for any number of rows; raise `RowsDifferError` if there is none."""
    graphs: list[Graph] = []
    joined: OpenGraph | None = None
    for count in _ROW_COUNTS:
        try:
            graphs.append(_emit(plan, count))
        except VolumetricError:
            if joined is None:  # not because it is too long, such as for a table of positions
                raise
            break
        if len(graphs) >= _LEAST:
            joined = join_graphs(graphs, _ROW_COUNTS[: len(graphs)])
    if joined is None:
        raise UnsupportedError("ONNX export needs graphs for more numbers of rows")
    return joined
